"""A market with attackers in it, played in memory: what they earn, and what becomes of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from databazaar.learning.oracles import Oracle
from databazaar.ledger import Accounts
from databazaar.market.arbiter import Arbiter
from databazaar.market.loop import play
from databazaar.parties import Consumer, Provider
from databazaar.payments import PricePerRow
from databazaar.training.parameters import vector_of
from databazaar_experiments.attacks import Attack, Known, MixedEngine


@dataclass(frozen=True)
class Attacked:
    """What came of it: everybody's pay, who attacked, who was flagged, and the model, delivered and last."""

    pay: dict[str, int]
    attackers: tuple[str, ...]
    flagged: tuple[str, ...]
    delivered: Tensor
    last: Tensor
    rounds: int

    @property
    def earned(self) -> int:
        """What all attackers get together."""
        return sum(self.pay.get(id, 0) for id in self.attackers)


def attacked_arbiter(
    consumer: Consumer,
    providers: Sequence[Provider],
    places: Sequence[str],
    attack: Attack | None,
    *,
    leaked: Any = None,
    seed: int = 0,
    device: str = "cpu",
    **rules: Any,
) -> tuple[Arbiter, tuple[str, ...]]:
    """The arbiter of a market with attackers in these places, who have seen the rows `leaked` of the hold-out, and
    their ids; without an attack the places stay empty. `rules` are what an Arbiter takes. Making it finds whatever
    keeps it from being played."""
    own = tuple(provider for provider in providers if provider.id in places)
    known = Known(consumer.task, own, leaked, len(providers), seed)
    joined = [] if attack is None else attack.join(known)
    first = next((i for i, provider in enumerate(providers) if provider.id in places), 0)
    present = [provider for provider in providers if provider.id not in places]
    present[first:first] = joined
    if isinstance(rules.get("payment"), PricePerRow):
        rules["payment"] = _by_the_row(rules["payment"], providers, present)
    engine = MixedEngine(consumer.task, present, device)
    arbiter = Arbiter(consumer, present, engine=engine, seed=seed, **rules)
    return arbiter, tuple(provider.id for provider in joined)


def play_attacked(arbiter: Arbiter, attackers: Sequence[str]) -> Attacked:
    """Plays the market that `attacked_arbiter` made."""
    run = arbiter.begin(Accounts(arbiter.rules))
    play(run, arbiter.engine)
    ids = arbiter.rules.terms.roster.ids
    return Attacked(
        pay=dict(run.accounts.book.pay),
        attackers=tuple(attackers),
        flagged=tuple(ids[i] for i in arbiter.rules.flagged(run.state.sampler)),
        delivered=vector_of(run.state.best.model).detach().cpu(),
        last=vector_of(run.state.model).detach().cpu(),
        rounds=run.state.round,
    )


def _by_the_row(payment: PricePerRow, before: Sequence[Provider], now: Sequence[Provider]) -> PricePerRow:
    """The same for who is there now: who answers by a callable claims the rows of the provider whose name it has."""
    known = {provider.id: rows for provider, rows in zip(before, payment.rows, strict=True)}
    counted = []
    for provider in now:
        if isinstance(provider.oracle, Oracle) and provider.data is not None:
            counted.append(int((provider.oracle.batches(len(provider.dataset[1]), key=0) >= 0).sum()))
        else:
            counted.append(next(rows for id, rows in known.items() if provider.id.split("~")[0] == id))
    return PricePerRow(tuple(counted))
