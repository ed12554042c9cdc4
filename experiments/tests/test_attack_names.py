"""Names without data: small noise under many ids of one owner."""

from __future__ import annotations

from dataclasses import replace

from databazaar.ledger import Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.runs.defended import Defended, defended_by
from databazaar_experiments.attacks import Attack, Honest, Noise
from databazaar_experiments.attacks.market import attacked_arbiter
from trust_markets import SHAPES, logistic

NAMES = 20
BUDGET = 6_000


def played(attack: Attack) -> tuple[dict[str, int], Defended]:
    """What everybody earns beside `NAMES` attackers of one owner, and the verdicts as an audit comes to them."""
    market = logistic(0, SHAPES["plain"], NAMES, False)
    places = [replace(place, owner="one") for place in market.places]
    everybody, ids = [*market.honest, *places], [place.id for place in places]
    arbiter, _ = attacked_arbiter(market.consumer(BUDGET), everybody, ids, attack, seed=0, defence="standard")
    ledger = Ledger(arbiter.rules)
    run = arbiter.begin(ledger)
    play(run, arbiter.engine)
    audit = audit_entries(ledger.store.entries())
    assert audit.ok and audit.book == ledger.book, audit.message
    defended = defended_by(audit)
    assert defended is not None
    return dict(ledger.book.pay), defended


def earned(pay: dict[str, int], who: str) -> float:
    return sum(amount for id, amount in pay.items() if id.startswith(who)) / BUDGET


def test_names_of_one_owner_earn_what_one_name_does() -> None:
    """No id has as many answers as it takes to be judged; their owner has."""
    pay, defended = played(Noise(0.1))
    names = [stand for stand in defended.stands if stand.provider.startswith("place")]
    assert sum(stand.answers for stand in names) >= 8 > max(stand.answers for stand in names)
    assert earned(pay, "place") < 0.01
    assert len({stand.standing for stand in names}) == 1
    assert earned(pay, "good") > 0.6


def test_an_honest_owner_of_as_many_data_sets_is_paid() -> None:
    pay, defended = played(Honest())
    assert {stand.standing for stand in defended.stands if stand.provider.startswith("place")} == {"cleared"}
    assert earned(pay, "place") > 0.1
