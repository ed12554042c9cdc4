"""What listeners are told that everybody has earned."""

from __future__ import annotations

from databazaar import OSMD, Arbiter
from databazaar.market.run import Progress
from small_markets import vector_market


def test_a_run_tells_of_the_book_as_it_was_after_each_round() -> None:
    told: list[Progress] = []
    consumer, providers = vector_market((0.0, 1.0, 2.0), budget=40, per_round=3)
    report = Arbiter(consumer, providers, OSMD(eta=0.2, alpha=0.2), engine="loop").run(tell=told.append)
    assert len(told) > 5
    earned: dict[str, int] = {}
    for one, round in zip(told, report.rounds, strict=True):
        for access in round.accesses:
            who = report.payouts[access.provider].provider
            earned[who] = earned.get(who, 0) + access.paid
        assert {who: pay for who, pay in one.pay.items() if pay} == {who: pay for who, pay in earned.items() if pay}
