"""Errors that a user can act on: one sentence that names the place and the remedy."""


class BazaarError(Exception):
    """Something the user can mend. The command line prints the sentence and exits with `exit_code`. `place` is the
    setting, or the field of a request, that it is about: a form shows the sentence there."""

    exit_code = 2

    def __init__(self, *said: object, place: str = "") -> None:
        super().__init__(*said)
        self.place = place


class LedgerError(BazaarError):
    """The ledger does not hold: a broken chain, a broken invariant, or an entry that should not be there."""

    exit_code = 1


class UncheckableError(BazaarError):
    """What was to be looked at cannot be had here: a database that does not answer, a file that may not be read, a rule
    whose package is missing. It says nothing about whether a run holds; `bazaar audit` exits with 3."""
