"""The schema of a job: what is predicted from which columns, with the scales and categories of its hold-out.

A site gets it with every ask, and may look at it before it agrees. A provider whose file is at the hub needs none of
it: it is told the target and the columns' names.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from databazaar.files import read_plain, write_whole
from databazaar.service.caller import Caller
from databazaar.service.contracts.looking import own_contract
from databazaar.service.errors import ConflictError
from databazaar.service.settings import Settings

FILE = "schema.json"
LARGEST = 2**26


def keep_schema(settings: Settings, job_id: str, schema: bytes) -> None:
    """Puts it into the job's folder, as a provider's kit takes it."""
    folder = settings.job_folder(job_id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / FILE, schema, mode=0o600)


def schema_of(session: Session, caller: Caller, settings: Settings, contract_id: str) -> bytes:
    """The schema.json by which a site will be asked; for its provider and the job's consumer."""
    contract = own_contract(session, caller, contract_id)
    if contract.fingerprint is None:
        raise ConflictError(
            "this contract has no schema to look at: one with a site has, where the hub has the hold-out"
        )
    folder = settings.job_folder(contract.job_id)
    return read_plain(folder / FILE, folder, LARGEST)
