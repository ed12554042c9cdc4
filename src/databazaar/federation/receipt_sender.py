"""The market's side of receipts: what is owed to whom, and sending it when the ledger has it. A run neither fails nor
waits long because of a receipt: what could not be delivered comes with the next one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from databazaar.canonical import GENESIS
from databazaar.codes import Code
from databazaar.engines.protocol import Evidence
from databazaar.engines.quarantine import Quarantine
from databazaar.federation.messages import ReceiptMessage, decode_reply, encode_request, question_hash
from databazaar.federation.receipts import MOST_ACCESSES, Freed, Hearing, Notice, Receipt, Settled
from databazaar.federation.transport import MessageError, Transport
from databazaar.ledger.chain import Entry

if TYPE_CHECKING:
    from databazaar.federation.signatures import MarketKeys

EVERY = 10
"""Rounds from one receipt to the next."""
PATIENCE, LAST_PATIENCE = 2.0, 10.0
"""Seconds for all receipts that are sent at one time; and at the end of a run, when nobody waits for the next round,
for all that are not taken."""
SHARE = 0.25
"""How much of them one provider may take."""
log = logging.getLogger(__name__)
Owed = tuple[int, Settled | Freed | Notice]
"""An access or held-back pay and the number of the entry that settled it, or a verdict and that of its figure."""


class ReceiptSender:
    """Follows one run's ledger and sends its providers their receipts."""

    def __init__(
        self,
        run: str,
        keys: MarketKeys,
        transport: Transport,
        evidence: Evidence,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._keys, self._transport, self._evidence = run, keys, transport, evidence
        self._clock = clock
        self._sent = evidence.receipts_sent()
        self._owed: dict[str, list[Owed]] = {}
        self._seq, self._head = -1, GENESIS
        self._rounds, self._due, self._turn = 0, 0, 0
        self._closed = False
        self._hearing = Hearing()
        self._silent = Quarantine(tolerated=1)

    def witness(self, entries: Sequence[Entry]) -> None:
        """Takes in durable entries, and sends receipts after ten rounds, at the close, and when a run is resumed."""
        resumed = self._seq < 0 and bool(self._sent)
        for entry in entries:
            self._seq, self._head = entry.seq, entry.hash
            if (entry.settles or entry.frees) and entry.provider is not None:
                self._owe(entry.provider, entry.seq, Settled.of(entry) if entry.settles else Freed.of(entry))
            for provider, told in self._hearing.hear(entry):
                self._owe(provider, entry.seq, told)
            if entry.ends_round:
                self._rounds += 1
            self._closed |= entry.closes
        if self._closed or resumed or self._rounds >= self._due + EVERY:
            self._due = self._rounds
            self._send_all()

    def _owe(self, provider: str, seq: int, said: Settled | Freed | Notice) -> None:
        owed = self._owed.setdefault(provider, [])
        if seq > self._sent.get(provider, -1):
            owed.append((seq, said))

    def _send_all(self) -> None:
        patience = LAST_PATIENCE if self._closed else PATIENCE
        until = self._clock() + patience
        self._turn += 1
        before = dict(self._sent)
        try:
            for name in self._whom():
                if (now := self._clock()) < until:
                    taken = self._send(name, min(until, now + SHARE * patience))
                    self._silent.note(name, self._turn, None if taken else Code("no-answer"))
                    if self._closed:  # only silence is charged then: it is the last receipt, and others ask, too
                        took = self._clock() - now
                        until += took if taken else max(0.0, took - SHARE * patience)
            if self._sent != before:
                self._evidence.note_receipts_sent(self._sent)
        except Exception:
            log.warning("receipts could not be sent, and are owed", exc_info=True)

    def _whom(self) -> list[str]:
        """Those who are owed something, the longest first, silent ones last; at the close all who were drawn."""
        waits = {name: owed[0][0] if owed else self._seq for name, owed in self._owed.items()}
        due = [
            name
            for name in sorted(waits, key=lambda name: (self._silent.holds(name), waits[name]))
            if self._owed[name] or (self._closed and self._sent.get(name) != self._seq)
        ]
        held = [name for name in due if self._silent.holds(name) and not self._silent.probes(name, self._turn)]
        return due if self._closed else [name for name in due if name not in held]

    def _send(self, name: str, until: float) -> bool:
        """Sends all that is owed to one provider; whether it has taken that."""
        while True:
            owed = self._owed[name]
            part, rest = owed[:MOST_ACCESSES], owed[MOST_ACCESSES:]
            after = rest[0][1].round if rest else None
            rounds = self._rounds if after is None else after
            settled = tuple(said for _, said in part if isinstance(said, Settled))
            freed = tuple(said for _, said in part if isinstance(said, Freed))
            told = tuple(said for _, said in part if isinstance(said, Notice))
            receipt = Receipt(self._keys.market, self._run, name, self._seq, self._head, rounds, settled, freed, told)
            if not self._taken(name, receipt, max(0.0, until - self._clock())):
                return False
            self._sent[name] = part[-1][0] if rest else self._seq
            self._owed[name] = rest
            if not rest:
                return True

    def _taken(self, name: str, receipt: Receipt, seconds: float) -> bool:
        """Whether the provider says, by its signature, that it has kept the receipt."""
        signed = {"receipt": receipt.text.decode(), "signature": self._keys.signer.sign(receipt.text)}
        signed["certificate"] = self._keys.certificate
        message = ReceiptMessage(protocol=2, kind="receipt", run=self._run, round=receipt.rounds, **signed)
        payload = encode_request(message)
        replies, _ = self._transport.request([name], payload, seconds)
        if name not in replies:
            return False
        try:
            heard = decode_reply(replies[name], message, name, None, question_hash(payload), self._keys.signed_with)
        except MessageError:
            return False
        return heard.reply.status == "ok" and not heard.fault
