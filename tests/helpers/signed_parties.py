"""A market with real certificates whose parties are all in this process: quick, and everybody signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from databazaar.federation.engine import FederatedEngine
from databazaar.federation.enrolment import load_kit
from databazaar.federation.receipts import ReceiptKeeper
from databazaar.federation.records import ANSWERS, AccessRecord
from databazaar.federation.signatures import MarketKeys, Signer
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from loopback import Federation
from markets import examples, federated

NAMES = ["bank1", "bank2", "bank3"]
Handler = Callable[[bytes], bytes]


class SignedParties:
    """A market's folder and the kits of its providers."""

    def __init__(self, root: Path, names: Sequence[str] = NAMES) -> None:
        made = Federation(root)
        self.market, self.names = made.market, list(names)
        self.kits = {name: made.enroll(name) for name in names}
        self.signers = {name: Signer.of_kit(kit) for name, kit in self.kits.items()}
        self.keys = MarketKeys.of(self.market)

    def worker(self, name: str) -> ProviderWorker:
        """An honest provider, as `bazaar provider join` makes it."""
        kit = load_kit(self.kits[name])
        return ProviderWorker(
            name,
            examples(name),
            record=AccessRecord(kit.folder / ANSWERS),
            signer=self.signers[name],
            receipts=ReceiptKeeper(kit.folder, name, kit.market),
        )

    def workers(self) -> dict[str, Handler]:
        return {name: self.worker(name) for name in self.names}

    def engine(self, handlers: Mapping[str, Handler] | None = None, **more: Any) -> FederatedEngine:
        """The market's engine, which checks signatures; those who answer in place of the workers are given."""
        transport = LocalTransport({**self.workers(), **(handlers or {})})
        return federated(self.names, transport, keys=self.keys, **more)

    def forget(self) -> None:
        """The providers' records of other tests."""
        for kit in self.kits.values():
            for name in (ANSWERS, "receipts.jsonl"):
                (kit / name).unlink(missing_ok=True)
