"""What a hub lets an arbiter of a consumer's own ask and tell, and what of a hub's answers is believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from databazaar import BazaarError
from databazaar.cli.own_arbiter import playing_own
from databazaar.client.connection import HubError
from databazaar.client.own_arbiter import NotaryClient
from databazaar.ledger import Entry
from databazaar.market.arbiter import Arbiter
from databazaar.service import credentials
from databazaar.service.lifecycle import JobState
from own_arbiters import (
    EnoughError,
    OwnMarket,
    asked,
    engine_of,
    stop_before_asking,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]
NOWHERE = Path("nowhere")


@pytest.fixture(scope="module")
def begun(own: OwnMarket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Arbiter, list[Entry]]]:
    """A job whose first round is reserved at the hub and not asked yet; its arbiter, and its entries."""
    job = own.job(name="Begun", budget="4.00")
    with own.playing(job, tmp_path_factory.mktemp("mine")) as playing:
        with pytest.raises(EnoughError):
            stop_before_asking(playing)
        yield job, playing.arbiter, list(playing.folder.entries())


def test_nothing_to_tell_is_not_told(own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]]) -> None:
    job, arbiter, entries = begun
    engine_of(arbiter).witness([])
    with own.notary(job, attempts=1) as notary:
        assert notary.standing().entries == len(entries)


def test_questions_that_were_not_agreed_are_refused(own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]]) -> None:
    job, arbiter, entries = begun
    drawn = [entry.provider or "" for entry in entries if entry.kind == "reserve"]
    task, names = engine_of(arbiter)._task, list(dict.fromkeys(drawn))
    assert task.model is not None and task.table is not None
    others: dict[str, dict[str, Any]] = {
        "another run": {"run": "0" * 32},
        "another run, consumer": {"consumer": "rival"},
        "or contract": {"contract": "0" * 32},
        "round 0 is under way": {"round": 1},
        "with the seed of the job": {"seed": 4},
        "other work": {"task": task.model_copy(update={"oracle": task.oracle.model_copy(update={"epochs": 50})})},
        "another model": {"task": task.model_copy(update={"model": None})},
        "another target": {
            "task": task.model_copy(update={"table": task.table.model_copy(update={"target": "weight"})})
        },
    }
    for why, other in others.items():
        with pytest.raises(HubError, match=why) as refused:
            asked(own, job, arbiter, names, **other)
        assert refused.value.status == 422
    with pytest.raises(HubError, match="is no provider of this job"):
        asked(own, job, arbiter, ["west-sales"])
    with own.notary(job, attempts=1) as notary, pytest.raises(HubError, match="the question cannot be read"):
        notary.request(names, b"DBZ1 and nothing else", 30.0)
    idle = sorted({"north-sales", "south-sales"} - set(names))
    for name in idle:
        with pytest.raises(HubError, match="is not drawn in round 0"):
            asked(own, job, arbiter, [name])
    assert asked(own, job, arbiter, ["north-sales", "south-sales"], update=False)[1] == {}


def test_a_chosen_model_is_not_answered(own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]]) -> None:
    """Weights that nobody has trained, made so that gradients show rows: the ledger names the run's own model."""
    job, arbiter, entries = begun
    names = list(dict.fromkeys(entry.provider or "" for entry in entries if entry.kind == "reserve"))
    crafted = torch.linspace(-100.0, 100.0, len(arbiter.consumer.initial_parameters()))
    with pytest.raises(HubError, match="other parameters than those that the ledger names for round 0") as refused:
        asked(own, job, arbiter, names, params=crafted)
    assert refused.value.status == 422
    assert own.found(job).paid is None and set(asked(own, job, arbiter, names)[0]) == set(names)


def test_a_question_again_gets_the_same_answers_and_another_none(
    own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]]
) -> None:
    job, arbiter, entries = begun
    names = list(dict.fromkeys(entry.provider or "" for entry in entries if entry.kind == "reserve"))
    first = asked(own, job, arbiter, names)
    assert set(first[0]) == set(names) and asked(own, job, arbiter, names) == first
    with pytest.raises(HubError, match="one question is all that a round buys"):
        asked(own, job, arbiter, names, params=arbiter.consumer.initial_parameters() + 0.5)
    with own.notary(job, attempts=1) as notary:
        assert notary.connected() == ["north-sales", "south-sales"]
        assert notary.standing().entries == len(entries)


def test_a_run_goes_on_from_its_own_folder_alone(
    own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]], tmp_path: Path
) -> None:
    with pytest.raises(BazaarError, match="the hub has other entries"), own.playing(begun[0], tmp_path) as playing:
        playing.settle()
    with pytest.raises(BazaarError, match="another run than job"), own.playing(own.job(), tmp_path):
        pass
    with (
        own.notary(begun[0]) as notary,
        pytest.raises(BazaarError, match="--holdout"),
        playing_own(notary, NOWHERE, {}),
    ):
        pass


def test_the_opening_says_what_the_job_says(own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]]) -> None:
    """Nobody chooses a seed, a price or a rule after the fact."""
    _, _, entries = begun
    job, opening = own.job(name="Begun", budget="4.00"), entries[0]
    changes: dict[str, Any] = {
        "seed": 4,
        "budget": 399,
        "per_round": 1,
        "providers": [["north-sales", "north", 4], ["south-sales", "south", 4]],
        "rules": {**opening.body["rules"], "sampler": {"kind": "uniform"}},
        "bounded_utility": False,
        "consumer": "Somebody else",
        "market": "Another",
        "most_per_round": 5,
        "format": 3,
    }
    with own.notary(job, attempts=1) as notary:
        for name, value in changes.items():
            forged = opening._replace(body={**opening.body, name: value}).sealed("0" * 64)
            with pytest.raises(HubError, match=f"another {name}|does not follow|has another") as refused:
                notary.report([forged])
            assert refused.value.status == 422
        odd = opening._replace(body={**opening.body, "rules": {**opening.body["rules"], "more": "x"}}).sealed("0" * 64)
        for wrong in (odd, opening._replace(kind="close").sealed("0" * 64), opening._replace(draw=1).sealed("0" * 64)):
            with pytest.raises(HubError):
                notary.report([wrong])
        assert notary.standing().entries == 0
        notary.report([opening])
        assert own.found(job).state == JobState.RUNNING


def test_only_the_jobs_own_consumer_plays_it(own: OwnMarket, begun: tuple[str, Arbiter, list[Entry]]) -> None:
    job = begun[0]
    with own.market.database.begin() as session:
        secrets = {
            slug: credentials.issue_token(session, own.market[slug], label="x", scopes=["read", right], days=1)[1]
            for slug, right in {"rival": "jobs", "north": "offers", "hub": "operate"}.items()
        }
    for secret in secrets.values():
        with NotaryClient(own.address, secret, job, attempts=1) as notary:
            for call in (notary.market, notary.standing, notary.connected, lambda n=notary: n.report(begun[2])):
                with pytest.raises(HubError) as refused:
                    call()
                assert refused.value.status == 404
    with own.notary(own.job("hosted"), attempts=1) as notary, pytest.raises(HubError, match="the hub runs this job"):
        notary.market()


class _Odd(NotaryClient):
    """A hub that answers something else."""

    def answer(self, method: str, path: str, **given: Any) -> Any:
        return SimpleNamespace(content=b"hello", json=lambda: {"connected": ["north"]})


def test_a_hub_that_answers_something_else_is_not_believed() -> None:
    with _Odd("http://127.0.0.1:9", "x" * 20, "0" * 32) as odd:
        with pytest.raises(HubError, match="cannot be read"):
            odd.request(["north"], b"", 1.0)
        assert odd.wait_for(["north"], 0.0) == []
        assert odd.wait_for(["north", "south"], 0.0) == ["south"]
        assert odd.request([], b"", 1.0) == ({}, {})
