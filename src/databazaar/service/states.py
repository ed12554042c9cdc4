"""The lifecycles of jobs and contracts: which state may follow which. Nothing else changes a state."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    DRAFT = "draft"
    SUBMITTED = "submitted"
    AGREED = "agreed"
    FUNDED = "funded"
    QUEUED = "queued"
    RUNNING = "running"
    SETTLING = "settling"
    SETTLED = "settled"
    REFUNDED = "refunded"
    FAILED = "failed"


class ContractState(StrEnum):
    REQUESTED = "requested"
    AGREED = "agreed"
    REFUSED = "refused"
    EXPIRED = "expired"
    ACTIVE = "active"
    ENDED = "ended"


_J, _C = JobState, ContractState

NEXT_OF_JOB: dict[JobState, frozenset[JobState]] = {
    _J.DRAFT: frozenset({_J.SUBMITTED, _J.REFUNDED}),
    _J.SUBMITTED: frozenset({_J.AGREED, _J.REFUNDED, _J.FAILED}),
    _J.AGREED: frozenset({_J.FUNDED, _J.REFUNDED}),
    _J.FUNDED: frozenset({_J.QUEUED, _J.RUNNING, _J.SETTLING}),
    _J.QUEUED: frozenset({_J.RUNNING, _J.SETTLING}),
    _J.RUNNING: frozenset({_J.QUEUED, _J.SETTLING}),
    _J.SETTLING: frozenset({_J.SETTLED, _J.REFUNDED, _J.FAILED}),
    _J.SETTLED: frozenset(),
    _J.REFUNDED: frozenset(),
    _J.FAILED: frozenset(),
}
"""`refunded` is a job that paid nobody, with or without money in it. `failed` is one that nobody agreed to, or whose
runs kept failing: what was posted is paid, and the rest is refunded. A job goes back from running to queued when its
runner was lost."""

NEXT_OF_CONTRACT: dict[ContractState, frozenset[ContractState]] = {
    _C.REQUESTED: frozenset({_C.AGREED, _C.REFUSED, _C.EXPIRED, _C.ENDED}),
    _C.AGREED: frozenset({_C.ACTIVE, _C.ENDED}),
    _C.ACTIVE: frozenset({_C.ENDED}),
    _C.REFUSED: frozenset(),
    _C.EXPIRED: frozenset(),
    _C.ENDED: frozenset(),
}
"""A contract ends with its job: unused where the job was withdrawn before it ran."""

OVER = frozenset({_J.SETTLED, _J.REFUNDED, _J.FAILED})
"""The states of a job that has no money locked."""
