"""Who listens to a run: callbacks hear when it begins, every round, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from databazaar.errors import BazaarError
from databazaar.ledger import Terms
from databazaar.market.run import OnRound, Progress
from databazaar.runs.report import Report


class Callback:
    """Base of what listens to a run: write any of the four methods, and give it as `Arbiter.run(callbacks=[…])`.

    A callback only listens: nothing that it does changes the draws, the model or the money. If it raises, the run stops
    and the exception goes up; the ledger stays sound, and in a folder the run can be resumed to the same end.

    >>> class Loud(Callback):
    ...     def on_round(self, progress):
    ...         print(progress.round, progress.paid)
    """

    def on_begin(self, terms: Terms) -> None:
        """The run is about to play, from its start or from where it stopped; `terms` are what was agreed."""

    def on_round(self, progress: Progress) -> None:
        """A round has been played."""

    def on_end(self, report: Report) -> None:
        """The run is closed, and with a folder everything is written."""

    def on_error(self, error: BaseException) -> None:
        """The run stopped without a report: it was interrupted, or something raised, perhaps another callback."""


class Callbacks(Callback):
    """Several as one, told in their order. The end is told to all of them, also where one raises."""

    def __init__(self, callbacks: Sequence[Callback | OnRound]) -> None:
        if not isinstance(callbacks, list | tuple):
            raise BazaarError(f"callbacks = {callbacks!r} must be a list: write callbacks=[…]")
        self._all = [_as_callback(one) for one in callbacks]

    @property
    def hears_rounds(self) -> OnRound | None:
        """What to call after a round; None where nobody listens, so that nothing is gathered for it."""
        return self.on_round if self._all else None

    def on_begin(self, terms: Terms) -> None:
        for one in self._all:
            one.on_begin(terms)

    def on_round(self, progress: Progress) -> None:
        for one in self._all:
            one.on_round(progress)

    def on_end(self, report: Report) -> None:
        with ExitStack() as stack:  # it goes through all of them, the last one in first
            for one in reversed(self._all):
                stack.callback(one.on_end, report)

    def on_error(self, error: BaseException) -> None:
        for one in self._all:
            with suppress(Exception):  # what stopped the run is what goes up
                one.on_error(error)

    @contextmanager
    def during(self, terms: Terms) -> Iterator[None]:
        """Tells the beginning, and an error that stops what is done inside."""
        try:
            self.on_begin(terms)
            yield
        except BaseException as error:
            self.on_error(error)
            raise


class _EveryRound(Callback):
    """A plain function that hears every round."""

    def __init__(self, function: OnRound) -> None:
        self._function = function

    def on_round(self, progress: Progress) -> None:
        self._function(progress)


def _as_callback(given: Callback | OnRound) -> Callback:
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise BazaarError(
            f"callback {given!r} is neither a Callback nor a function of the Progress: give an instance of one"
        )
    return _EveryRound(given)
