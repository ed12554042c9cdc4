"""A consumer of these tests in a process of its own: `python -m consumer_process MARKET CONSUMER SEED` plays a market
over the federation in that folder and prints what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from databazaar import Arbiter
from databazaar.engines import Beginning
from databazaar.federation.grpc_transport import GrpcTransport
from markets import a_consumer, afar, federated
from own_samplers import Valued

BANKS = ["bank1", "bank2", "bank3"]


def main(market: str, consumer: str, seed: str) -> None:
    with GrpcTransport(Path(market), consumer) as transport:
        engine = federated(BANKS, transport, consumer=consumer, deadline=60.0)
        engine.begin(Beginning(seed * 32))
        report = Arbiter(a_consumer(), afar(BANKS), Valued(), engine=engine, seed=int(seed)).run()
    void = sum(access.failure is not None for round in report.rounds for access in round.accesses)
    print(json.dumps({"model": report.model_hash, "head": report.ledger_head, "void": void}))


if __name__ == "__main__":
    main(*sys.argv[1:])
