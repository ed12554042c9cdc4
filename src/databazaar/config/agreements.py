"""What a market's prices, caps and limits come to, in sentences, and what about them may not be meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from databazaar.config.jobs import Job
from databazaar.config.prices import unpayable
from databazaar.payments import PricePerAccess
from databazaar.roster import Offer, Roster


@dataclass(frozen=True)
class Agreements:
    """`said` is what is agreed beside a price for each: none where that is all. `warnings` may be meant as they are,
    and with `faults` nobody could be asked."""

    said: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Cost:
    """What an access to a provider costs from a round on, as people count rounds, from 1."""

    from_round: int
    quote: int


def agreements(job: Job) -> Agreements:
    """Of a job whose settings have no faults. What an access costs may depend on rows, which no setting tells."""
    roster, consumer = Roster(tuple(provider.offer for provider in job.providers)), job.consumer
    costs = _costs(job, roster)
    first = [cost.quote for cost, *_ in costs]
    faults = tuple(unpayable(consumer.currency, consumer.budget, consumer.limits, consumer.per_round, first))
    if faults:
        return Agreements(faults=faults)
    return Agreements(tuple(_said(job, roster, costs)), tuple(_warnings(job, roster, costs)))


def _costs(job: Job, roster: Roster) -> list[list[_Cost]]:
    """The costs of an access to each provider, one after the other."""
    payment, costs = job.payment or PricePerAccess(), [list[_Cost]() for _ in roster.offers]
    for round in (0, *roster.change_rounds):
        for found, quote in zip(costs, payment.quote(roster.at(round)).tolist(), strict=True):
            if not found or found[-1].quote != quote:
                found.append(_Cost(round + 1, quote))
    return costs


def _said(job: Job, roster: Roster, costs: list[list[_Cost]]) -> Iterator[str]:
    money, consumer = job.consumer.currency.format, job.consumer
    if consumer.most_per_access is not None:
        yield f"whoever costs more than {money(consumer.most_per_access)} is not asked"
    if consumer.most_per_round is not None:
        yield f"no round costs more than {money(consumer.most_per_round)}"
    for offer, (first, *later) in zip(roster.offers, costs, strict=True):
        if offer.most_accesses is not None or later:
            cap = [] if offer.most_accesses is None else [f"at most {_accesses(offer.most_accesses)}"]
            changes = [f"{money(cost.quote)} from round {cost.from_round} on" for cost in later]
            yield f"{offer.id}: " + ", ".join([f"{money(first.quote)} an access", *changes, *cap])


def _warnings(job: Job, roster: Roster, costs: list[list[_Cost]]) -> Iterator[str]:
    consumer, money = job.consumer, job.consumer.currency.format
    limits = {"budget": consumer.budget, **consumer.limits}
    least = min(limits, key=lambda name: limits[name])
    for offer, theirs in zip(roster.offers, costs, strict=True):
        yield from _too_dear(offer, theirs, limits[least], f"market.{least} = {money(limits[least])}", money)
    cheapest = min(first.quote for first, *_ in costs)
    pace, per_round = consumer.limits.get("most_per_round"), consumer.per_round
    if pace is not None and pace < per_round * cheapest:
        yield (
            f"market.most_per_round = {money(pace)} shortens every round, because per_round = {per_round} accesses "
            f"cost {money(per_round * cheapest)} or more"
        )
    payable = [[cost.quote for cost in theirs if cost.quote <= limits[least]] for theirs in costs]
    sellers = [
        (offer.most_accesses, max(quotes)) for offer, quotes in zip(roster.offers, payable, strict=True) if quotes
    ]
    if all(cap is not None for cap, _ in sellers):
        most = sum((cap or 0) * quote for cap, quote in sellers)
        if most < consumer.budget:
            yield (
                f"the providers' most_accesses let {money(most)} be spent at the most, and market.budget is "
                f"{money(consumer.budget)}: the rest comes back"
            )


def _too_dear(offer: Offer, costs: list[_Cost], most: int, limit: str, money: Callable[[int], str]) -> Iterator[str]:
    """Who is never asked, or not for a while, because of a limit."""
    if all(cost.quote > most for cost in costs):
        yield f"{offer.id} costs {money(min(cost.quote for cost in costs))} or more and is never asked: {limit}"
        return
    for cost, end in zip(costs, [*(later.from_round for later in costs[1:]), None], strict=True):
        if cost.quote > most:
            when = f"from round {cost.from_round} " + ("on" if end is None else f"to {end - 1}")
            yield f"{offer.id} costs {money(cost.quote)} {when} and is not asked then: {limit}"


def _accesses(number: int) -> str:
    return f"{number:,} access{'' if number == 1 else 'es'}"
