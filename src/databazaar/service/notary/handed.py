"""What was passed on in the round under way: which question, whose answers. It outlives the hub's process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from databazaar.codes import Code
from databazaar.errors import BazaarError
from databazaar.federation.bundles import decode_bundle, encode_bundle
from databazaar.files import read_plain, write_whole

HANDED = "handed.bin"
LARGEST = 8 * 2**30


@dataclass(frozen=True)
class Handed:
    """`answers` are the valid replies of a round, as they were passed on, and `failures` why others have none, by the
    ledger's codes. `question` is the hash of the one question that the round asks; empty where none was asked yet."""

    round: int = -1
    question: str = ""
    answers: dict[str, bytes] = field(default_factory=dict)
    failures: dict[str, Code] = field(default_factory=dict)

    def of_round(self, round: int) -> Handed:
        """What was passed on in this round."""
        return self if self.round == round else Handed(round)

    def with_answers(self, question: str, answers: dict[str, bytes], failures: dict[str, Code]) -> Handed:
        """With these too; who has given a valid answer once has given it."""
        answers = {**answers, **self.answers}
        failures = {who: why for who, why in {**self.failures, **failures}.items() if who not in answers}
        return replace(self, question=question, answers=answers, failures=failures)

    def keep(self, folder: Path) -> None:
        """For good, before anybody gets an answer."""
        failures = {who: code.body() for who, code in self.failures.items()}
        header = {"round": self.round, "question": self.question, "failures": failures}
        write_whole(folder / HANDED, encode_bundle(header, self.answers), 0o600)

    @classmethod
    def kept(cls, folder: Path) -> Handed:
        try:
            header, answers = decode_bundle(read_plain(folder / HANDED, most=LARGEST))
            failures = {who: Code.read(body) for who, body in header["failures"].items()}
            return cls(header["round"], header["question"], answers, failures)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError):
            raise BazaarError(f"{folder / HANDED} cannot be read: put the old file back") from None
