"""A provider of these tests that answers a market's messages, well or badly."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from databazaar.federation.enrolment import load_kit
from databazaar.federation.messages import Reply, Request, decode_request, encode_reply, is_receipt
from databazaar.federation.receipts import ReceiptKeeper
from databazaar.federation.signatures import Signer
from databazaar.federation.table import Table
from databazaar.federation.worker import ProviderWorker
from loopback import WAIT, eventually
from markets import examples

torch.set_num_threads(1)


def misbehave(what: str, payload: bytes, request: Request, update: Tensor) -> bytes:
    """A reply as it should be but for one thing. One that is forged is signed with another provider's key."""
    header: dict[str, Any] = {"protocol": 2, "run": request.run, "round": request.round, "epsilon": None}
    header |= {"provider": os.environ["PARTY"], "status": "ok", "code": "", "delta": None}
    match what:
        case "nan":
            update = update * float("nan")
        case "inf":
            update = update + float("inf")
        case "huge":
            update = update + 1e38
        case "shape":
            update = update[1:]
        case "stale":
            header["round"] = request.round + 1
        case "identity":
            header["provider"] = "bank1"
        case "raise":
            raise ValueError("a secret of the provider")
        case "forged":
            return ProviderWorker(os.environ["PARTY"], lambda w: -w, signer=_signer("bank3"))(payload)
    return encode_reply(Reply.model_validate(header), update)


def _signer(name: str) -> Signer:
    return Signer.of_kit(Path(os.environ["NOTES"]).parent.parent / name)


_workers: dict[bool, ProviderWorker] = {}


def market(payload: bytes) -> bytes:
    """A worker over the party's own data; `behave.txt` in its kit makes it misbehave, a word a round.

    One that hangs does so while the file is there.
    """
    kit, me = Path(os.environ["NOTES"]).parent, os.environ["PARTY"]
    if is_receipt(payload):
        return next(iter(_workers.values()))(payload)
    request, params = decode_request(payload)
    with (kit / "asked.txt").open("a") as notes:
        notes.write(f"{request.run} {request.round} {request.kind}\n")
    tabular = request.task.table is not None
    if tabular not in _workers:
        source = Table(kit / "data.csv") if tabular else examples(me)
        receipts = ReceiptKeeper(kit, me, load_kit(kit).market)
        _workers[tabular] = ProviderWorker(me, source, signer=_signer(me), receipts=receipts)
    with contextlib.suppress(FileNotFoundError):
        words = (kit / "behave.txt").read_text().split()
        word = words[request.round % len(words)]
        if word == "hang":
            eventually(lambda: not (kit / "behave.txt").exists(), WAIT)
        elif word != "good" and params is not None:
            return misbehave(word, payload, request, torch.ones_like(params))
    return _workers[tabular](payload)
