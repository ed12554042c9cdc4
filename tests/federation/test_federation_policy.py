"""A server that turns against its providers: commands and code that it sends are refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from databazaar.federation import server
from databazaar.federation.transport import FlareTransport
from loopback import SEARCH_PATH, WAIT, Federation, eventually, server_log
from parties import BOUND

pytestmark = [pytest.mark.slow, pytest.mark.process]
JOB = "5b1f6f2e-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("hostile"), "hostile")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", SEARCH_PATH)

    def swap(component: str) -> Callable[[dict[str, Any]], object]:
        return lambda kit: kit["components"][-1].update(path=component)

    try:
        for name in ("guarded", "unguarded", "second"):
            made.enroll(name)
        made.edit("market/server/local/resources.json", swap("parties.CuriousMarketSite"))
        made.edit("unguarded/startup/fed_client.json", lambda kit: kit.update(require_signed_jobs=False))
        made.edit("unguarded/local/resources.json", swap("parties.UnguardedProviderSite"))
        made.edit("second/local/resources.json", swap("parties.SecondGuardSite"))
        made.up()
        for name in ("guarded", "unguarded", "second"):
            made.start(name)
        with FlareTransport(made.market) as opened:
            assert opened.wait_for(["guarded", "unguarded", "second"], WAIT) == []
        yield made
    finally:
        made.close()
        patch.undo()


Headers = dict[str, object]


def command(
    federation: Federation, name: str, topic: str, body: bytes, headers: Headers | None = None, *, bulk: bool = False
) -> str:
    channel = server.connect(federation.market)
    try:
        how = {"binary": topic == "train.deploy", "bulk": bulk}
        channel.send({"op": "command", "name": name, "topic": topic, "headers": headers or {}, **how}, body)
        return channel.receive()[1].decode()
    finally:
        channel.close()


def refused(federation: Federation, topic: str, body: bytes, headers: Headers | None = None) -> str:
    """Send a command to the guarded provider: nothing comes back, and the provider's log says why."""
    log = federation.root / "guarded" / "log.txt"
    before = log.read_text().count("refused by provider policy")
    said = command(federation, "guarded", topic, body, headers)
    assert "timeout" in said
    assert log.read_text().count("refused by provider policy") > before
    return said


def job(code: bool) -> tuple[bytes, Headers]:
    """An application as FLARE's job runner sends it, with or without a `custom` folder of Python."""
    config = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {"path": "evil.Evil", "args": {}}}],
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("config/config_fed_client.json", json.dumps(config))
        if code:
            archive.writestr("custom/evil.py", "from pathlib import Path\nPath('/tmp/evil').touch()\n")
    meta = {
        "job_id": JOB,
        "name": "evil",
        "submitter_name": "boss@market",
        "submitter_org": "market",
        "submitter_role": "project_admin",
        "scope": "",
    }
    return packed.getvalue(), {"job_id": JOB, "app_name": "app", "job_meta": meta}


def test_without_our_guard_flare_lets_a_server_read_a_provider_s_files(hostile: Federation) -> None:
    """Why the guard is there. Should FLARE close this door itself, this test will say so."""
    assert "fed_client.json" in command(hostile, "unguarded", "sys.shell", b"ls startup")


def test_a_server_cannot_read_a_provider_s_files(hostile: Federation) -> None:
    assert "fed_client.json" not in refused(hostile, "sys.shell", b"ls startup")


def test_a_job_that_carries_code_is_refused_before_it_is_unpacked(hostile: Federation) -> None:
    app, headers = job(code=True)
    refused(hostile, "train.deploy", app, headers)
    assert not list((hostile.root / "guarded").rglob("evil.py"))


def test_behind_our_guard_flare_s_policy_refuses_a_job_that_carries_code(hostile: Federation) -> None:
    app, headers = job(code=True)
    assert command(hostile, "unguarded", "train.deploy", app, headers).endswith("BYOC not permitted")
    assert not list((hostile.root / "unguarded").rglob("evil.py"))


def test_a_job_without_code_is_refused_too(hostile: Federation) -> None:
    refused(hostile, "train.start_job", b"", {"job_id": JOB})


def test_a_command_inside_a_bulk_message_is_refused(hostile: Federation) -> None:
    """FLARE unpacks these past its filters: without our guard the application below is put in place."""
    app, headers = job(code=False)
    command(hostile, "unguarded", "train.deploy", app, headers, bulk=True)
    assert eventually(lambda: (hostile.root / "unguarded" / JOB).exists(), 10)
    for name in ("guarded", "second"):
        log = hostile.root / name / "log.txt"
        before = log.read_text().count("refused by provider policy")
        command(hostile, name, "train.deploy", app, headers, bulk=True)
        assert eventually(lambda: log.read_text().count("refused by provider policy") > before, 10)  # noqa: B023
        with FlareTransport(hostile.market) as opened:  # an answer to a later question: the command is behind it
            assert opened.request([name], b"still there?", 20)[1] == {}
        assert not (hostile.root / name / JOB).exists()


def test_without_our_guard_a_job_without_code_is_put_in_place_but_cannot_start(hostile: Federation) -> None:
    app, headers = job(code=False)
    assert "deployed" in command(hostile, "unguarded", "train.deploy", app, headers)
    assert "resource_manager" in command(hostile, "unguarded", "train.start_job", b"", headers)


def test_the_guarded_provider_still_answers_questions(hostile: Federation) -> None:
    with FlareTransport(hostile.market) as opened:
        assert opened.request(["guarded"], b"and now?", 20) == ({"guarded": b"guarded:and now?"}, {})


def test_a_provider_cannot_answer_in_another_s_name(hostile: Federation) -> None:
    """The liar forges the sender's name on an answer to a question that both were asked, and is first."""
    with FlareTransport(hostile.market) as opened:
        replies, failures = opened.request(["guarded", "unguarded"], b"lie guarded", 20)
    assert replies == {"guarded": b"guarded:lie guarded", "unguarded": b"unguarded:lie guarded"}
    assert failures == {}
    assert BOUND in server_log(hostile)


def test_providers_cannot_talk_to_each_other(hostile: Federation) -> None:
    with FlareTransport(hostile.market) as opened:
        assert opened.request(["unguarded"], b"gossip guarded", 20)[1] == {}
        assert eventually(lambda: "refused a message of unguarded to 'guarded'" in server_log(hostile))
        assert opened.request(["guarded"], b"the end", 20)[1] == {}
    notes = (hostile.root / "guarded" / "notes.txt").read_text()
    assert "the end" in notes
    assert "gossip" not in notes
