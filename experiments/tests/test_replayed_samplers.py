"""What `coins` did is replayed by an audit, from the gains that the ledger holds."""

from __future__ import annotations

import pytest

from databazaar import Arbiter
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.samplers import Sampler
from databazaar_experiments.samplers.coins import Coins
from forging import reseal
from small_markets import vector_market


@pytest.mark.parametrize("sampler", [Coins(), Coins(0.1, 0.5), Coins(0.1, 0.5, False, "access")], ids=repr)
def test_an_audit_replays_it_and_finds_a_forged_gain(sampler: Sampler) -> None:
    consumer, providers = vector_market(budget=90, prices=[1, 2, 3, 1])
    arbiter = Arbiter(consumer, providers, sampler, engine="loop", seed=4)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    entries = list(ledger.store.entries())
    assert audit_entries(entries).ok
    at = next(i for i, entry in enumerate(entries) if entry.kind == "round" and entry.round == 2)
    gains = [2 * gain + 0.1 if k == 0 else gain for k, gain in enumerate(entries[at].body["gains"])]
    forged = entries[at]._replace(body={**entries[at].body, "gains": gains})
    assert not audit_entries(reseal([*entries[:at], forged, *entries[at + 1 :]])).ok
