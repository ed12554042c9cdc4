"""The one seam: an engine is asked for updates and replies with those that are valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.codes import Code
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.ledger.chain import Entry
from databazaar.ledger.replies import SignedReply

LIMIT = 1e15
"""An update with a larger entry is not an update: its square would not fit a float32."""
NO_UTILITY = Code("no-utility")
TOO_FAR = Code("gain-not-finite")
DIVERGES = Code("round-without-utility")
"""A market's reasons to void an update that an engine found to be in good order."""
BEYOND_LIMIT = Code.of("beyond-limit", limit=LIMIT)


@dataclass(frozen=True)
class Ask:
    """One round's question: these providers (indices, each once), from these parameters.

    Whatever randomness an oracle uses derives from (seed, round, provider's id).
    """

    params: Tensor
    providers: Sequence[int]
    round: int
    seed: int


@dataclass(frozen=True)
class Replies:
    """Stacked updates [m, d], one row per provider asked; a row of a failed provider is zero. Where rows are asked for
    there are `rows` by provider instead, with their `places` in the provider's table, and updates of no width.

    `signed` has the hash of the reply of everybody who has signed it, once it is kept: the ledger names it.
    """

    updates: Tensor
    failures: dict[int, Code]
    signed: dict[int, str] = field(default_factory=dict)
    rows: Mapping[int, Examples] = field(default_factory=dict)
    places: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, ask: Ask, answers: Iterable[Tensor | Code]) -> Replies:
        """Collects one answer per provider asked: an update, or the reason why there is none. Answers that are computed
        as they are asked for are held one at a time."""
        count, width = len(ask.providers), len(ask.params)
        rows = ask.params.new_empty(count, width)  # take memory once they are written
        failures = {}
        pending = iter(answers)
        for place, provider in enumerate(ask.providers):
            answer = next(pending)
            reason = answer if isinstance(answer, Code) else why_invalid(answer, ask.params)
            if reason is not None:
                failures[provider] = reason
                rows[place].zero_()
            elif isinstance(answer, Tensor):
                rows[place] = answer
            del answer  # not held while the next one is computed
        if next(pending, None) is not None:
            raise ValueError("there are more answers than providers that were asked")
        return cls(rows, failures)

    def among(self, asked: Sequence[int], drawn: Sequence[int], reason: Code) -> Replies:
        """The replies of all that were drawn: those who were not asked have failed for this reason."""
        aside = dict.fromkeys((i for i in drawn if i not in asked), reason)
        if not aside:
            return self
        updates = self.updates.new_zeros(len(drawn), self.updates.shape[1])
        updates[[place for place, i in enumerate(drawn) if i not in aside]] = self.updates
        return replace(self, updates=updates, failures={**self.failures, **aside})


Ended = tuple[int, int, Code | None]
"""How one ask ended: its round, the provider asked, and why its reply failed, None where it did not."""


NotePrivacy = Callable[[str, float, float], None]
"""Called with a provider's name, its ε and its δ whenever it says what it has spent."""


class Evidence(Protocol):
    """Where a run keeps what its parties have signed, for later disputes."""

    def keep_replies(self, replies: Sequence[SignedReply]) -> None:
        """Keeps these for good before it returns."""

    def note_certificates(self, authority: str, certificates: Mapping[str, str]) -> None:
        """Keeps the certificates, in PEM by name, that replies are verified with, and that of who has issued them."""

    def receipts_sent(self) -> dict[str, int]:
        """Up to which entry of the ledger each provider has got its receipts."""

    def note_receipts_sent(self, sent: Mapping[str, int]) -> None:
        """Keeps that for a resume."""


@dataclass(frozen=True)
class Beginning:
    """What an engine is told before the first ask of a run: the run's id, how asks before a resume ended, where to note
    what providers say of their privacy, and where to keep what they sign.

    A run that is `over` asks nobody any more; only receipts may still be owed.
    """

    run: str
    ended: Sequence[Ended] = ()
    note_privacy: NotePrivacy | None = None
    evidence: Evidence | None = None
    over: bool = False


@runtime_checkable
class Engine(Protocol):
    """Answers asks. Inherit from it and write `query`. `check_engine` compares any engine with the reference."""

    device: torch.device

    def query(self, ask: Ask) -> Replies:
        """Asks every provider of `ask` once. A provider's failure is a reply, never an exception. The replies are the
        market's from then on: it may write to them."""
        ...

    def close(self) -> None:
        """Lets go of whatever the engine holds."""
        return None


@runtime_checkable
class Remote(Protocol):
    """An engine whose providers are other parties, who work for every ask: they are asked for what is bought alone,
    and never for a comparison that nobody pays for. It sets providers aside by itself, and hears of a run's ledger."""

    def begin(self, beginning: Beginning) -> None:
        """Called once before the first ask of a run that is kept, and again when it is resumed."""

    def witness(self, entries: Sequence[Entry]) -> None:
        """Called with the entries of the run's ledger, in order, once they are durable; on a resume, first all of
        them. What it does with them never fails a run."""


@runtime_checkable
class QueriesAll(Protocol):
    """An engine that computes several asks as one stack."""

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        """The replies to each, in their order: what `query` would give, up to float tolerance."""


def query_all(engine: Engine, asks: Sequence[Ask]) -> list[Replies]:
    """The replies to several asks, in their order."""
    return engine.query_all(asks) if isinstance(engine, QueriesAll) else [engine.query(ask) for ask in asks]


def why_invalid(update: Any, params: Tensor) -> Code | None:
    """Why an update cannot be used, or None. Checked on the arbiter's side for every engine."""
    if not isinstance(update, Tensor):
        return Code.of("update-type", found=type(update).__name__)
    if update.shape != params.shape:
        return Code.of("update-shape", found=str(list(update.shape)), wanted=str(list(params.shape)))
    if update.dtype != params.dtype:
        return Code.of("update-numbers", found=str(update.dtype), wanted=str(params.dtype))
    if not update.numel():
        return None
    least, most = (float(end) for end in torch.aminmax(update))  # without a copy; both are NaN where any number is
    if not (math.isfinite(least) and math.isfinite(most)):
        return Code("not-finite")
    return BEYOND_LIMIT if max(-least, most) > LIMIT else None


def length(update: Tensor, size: int = 2**20) -> float:
    """‖g‖ in 64 bits, in pieces: a vector of 64 bits would be two more copies."""
    return math.hypot(
        *(float(torch.linalg.vector_norm(piece, dtype=torch.float64)) for piece in torch.split(update, size))
    )


def raised(error: BaseException) -> Code:
    """Why there is no update: what somebody's own code raised."""
    return Code.of("oracle-raised", type=type(error).__name__, text=" ".join(str(error).split())[:200])


def as_update(answer: Any, params: Tensor) -> Tensor | Code:
    """What a user's callable returned, as a vector like `params`, or the reason why it is none."""
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu().numpy()
    if not isinstance(answer, np.ndarray):
        return Code.of("update-type", found=type(answer).__name__)
    if answer.dtype.kind not in "fiu":
        return Code.of("update-numbers", found=str(answer.dtype), wanted="numbers")
    if answer.shape != tuple(params.shape):
        return Code.of("update-shape", found=str(list(answer.shape)), wanted=str(list(params.shape)))
    return torch.from_numpy(np.array(answer)).to(params)


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise BazaarError(f"device {name!r} is not here: use auto, cpu, or a GPU that torch can see") from None
    return device


def out_of_memory(reason: BaseException) -> bool:
    """Whether there was no memory left. On a CPU torch has no exception of its own for that."""
    lacks = "can't allocate memory" in str(reason) or "not enough memory" in str(reason)
    return isinstance(reason, MemoryError | torch.OutOfMemoryError) or (isinstance(reason, RuntimeError) and lacks)


@contextmanager
def memory_may_run_out() -> Iterator[None]:
    """A sentence in place of what a library says when it gets no memory."""
    try:
        yield
    except Exception as reason:
        if not out_of_memory(reason):
            raise
        raise BazaarError(
            f"memory ran out in the middle of a round ({' '.join(str(reason).split())[:120]}): nothing of it is paid; "
            "resume the run with more memory, or begin one with a lower per_round, smaller batches or fewer trained "
            "parameters (an adapter)"
        ) from reason
