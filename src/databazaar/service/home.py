"""The hub's folder belongs to its database: both hold one market id, written when the hub first serves.

The database knows who has paid, and the folder has the ledgers that say for what. So a database with an empty folder,
as where a volume is not mounted, is refused: every job under way would look as if it had never run.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from databazaar.errors import BazaarError
from databazaar.files import read_plain, write_whole
from databazaar.service import members
from databazaar.service.database.columns import new_id
from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings

FILE = "market-id"


class ForeignHomeError(BazaarError):
    """The folder is not that of the database."""


def bind(settings: Settings, database: Database) -> None:
    """Writes one new id into both, where neither has any; and refuses a folder and a database that differ."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with database.begin() as session:
        market = members.market(session, lock=True)
        if market.market_id is None and _read(settings) is None:
            market.market_id = new_id()
            write_whole(settings.home / FILE, f"{market.market_id}\n".encode(), mode=0o600)
        require_home(session, settings)


def require_home(session: Session, settings: Settings) -> None:
    """Refuses a folder that is not, or is no longer, that of the database."""
    here, wanted = _read(settings), members.market(session).market_id
    if here == wanted:
        return
    if here is None:
        raise ForeignHomeError(
            f"{settings.home} is not the folder of this database, which belongs to market {wanted}, for it has no file "
            f"{FILE}: mount that folder or restore its copy, and see 'A folder that is lost' in docs/operate.md"
        )
    other = "has no folder yet" if wanted is None else f"belongs to market {wanted}"
    raise ForeignHomeError(
        f"{settings.home} is the folder of market {here}, and the database {other}: give the right folder with --home, "
        "or the right database with --database"
    )


def _read(settings: Settings) -> str | None:
    path = settings.home / FILE
    try:
        return read_plain(path, most=1000).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise ForeignHomeError(f"{path} cannot be read ({reason.strerror}): make it readable to the hub") from None
