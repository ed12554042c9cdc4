"""Webhooks: organisations are told what has happened by signed POSTs, from an outbox that a crash does not empty."""

from databazaar.service.outbox.delivery import deliver_due
from databazaar.service.outbox.hooks import add_webhook, deliveries, remove_webhook, tell, webhooks
from databazaar.service.outbox.sending import Parcel, post, signature_of

__all__ = [
    "Parcel",
    "add_webhook",
    "deliver_due",
    "deliveries",
    "post",
    "remove_webhook",
    "signature_of",
    "tell",
    "webhooks",
]
