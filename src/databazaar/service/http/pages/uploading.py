"""Files that come with a form: received once, and kept for the next try where something else in it was wrong."""

from __future__ import annotations

from databazaar.service import files
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Visit


def receive(visit: Visit, form: Form, name: str, *, needed: bool = False) -> None:
    """Puts the file of this field into `form.kept`: the one that was sent now, or with the try before."""
    sent = form.uploads(name)
    try:
        if sent:
            with visit.begin() as session:
                form.kept[name] = files.keep(session, visit.caller, visit.settings, *sent[0])
        elif before := form.text(f"{name}_id"):
            with visit.read() as session:
                form.kept[name] = files.own_file(session, visit.caller, before)
        elif needed:
            form.blame(name, "no file was chosen: choose a CSV or Parquet file")
    except MissingError:
        form.blame(name, "the file is not here any more: choose it again")
    except (InvalidError, ConflictError) as error:
        form.blame(name, str(error))
