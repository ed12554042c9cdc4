"""Providers that keep failing are set aside, and tried again ever more seldom until they answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from databazaar.codes import QUARANTINED, Code

_LONGEST_PAUSE = 64


@dataclass(frozen=True)
class FailureCount:
    """How a provider has done lately: failures on end, and the round from which it is tried again."""

    failures: int = 0
    try_again: int = 0


@dataclass
class Quarantine:
    """Providers that failed `tolerated` times on end are only probed, after pauses of 1, 2, 4, … up to 64 rounds.

    The standings follow from how asks ended, by the ledger's codes, and from nothing else. So a run that is resumed
    notes what its ledger holds and stands where it stood. In a local run a probe is an ask like any other; a
    federation first looks for a sign of life.
    """

    tolerated: int = 3
    standings: dict[str, FailureCount] = field(default_factory=dict)

    def holds(self, name: str) -> bool:
        """Is it set aside?"""
        return self._standing(name).failures >= self.tolerated

    def probes(self, name: str, round: int) -> bool:
        """Is it set aside, and asked in this round whether it is well again?"""
        return self.holds(name) and round >= self._standing(name).try_again

    def note(self, name: str, round: int, reason: Code | None, *, honest: bool = False) -> None:
        """How an ask of this round ended: with an update, or for this reason without.

        A provider that is still set aside in a round in which it was probed has failed the probe. An `honest` reason
        does not count against it: a refusal, or an update that only the market found a reason to void.
        """
        if reason is None or honest:
            self.standings.pop(name, None)
        elif reason != QUARANTINED or self.probes(name, round):
            failures = self._standing(name).failures + 1
            pause = min(2 ** max(0, failures - self.tolerated), _LONGEST_PAUSE)
            self.standings[name] = FailureCount(failures, round + pause)

    def _standing(self, name: str) -> FailureCount:
        return self.standings.get(name, FailureCount())
