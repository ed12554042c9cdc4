"""A page is added with two files: a module of the resources, and a template. Nothing else names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import ChoiceLoader, FileSystemLoader

from databazaar.service.http import resources
from databazaar.service.http.app import create_app
from databazaar.service.http.pages import templates
from page_market import PageMarket
from visitor import Visitor
from web_market import ENDLESS

MODULE = '''
"""A page that counts one's jobs, and a command that both programs and its form send."""

from databazaar.client.shapes import Account
from databazaar.service import jobs
from databazaar.service.http.context import Call
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Routes
from sqlalchemy.orm import Session

routes = Routes("probe")


@routes.page("/probe", "probe", "Probe", role="consumer", menu=("Buying", 9))
def probe_page(page: PageContext, session: Session) -> dict[str, int]:
    return {"number": len(jobs.own_jobs(session, page.caller))}


@routes.form(
    "/probe",
    "{made.balance} are counted.",
    page=probe_page,
    read=lambda page, form: {"balance": form.needed_amount("balance", page.currency)},
)
@routes.write("/probe", Account)
def count(call: Call, session: Session, *, balance: int) -> Account:
    """Counts."""
    return Account(name=call.caller.slug, balance=balance)
'''
TEMPLATE = """
{% extends "service/shell.html.jinja" %}
{% from "service/forms.html.jinja" import field %}
{% block content %}<p>{{ number }} jobs</p>{{ field(form, "balance", "Balance") }}{% endblock %}
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "probe.py").write_text(MODULE)
    (tmp_path / "probe.html.jinja").write_text(TEMPLATE)
    monkeypatch.setattr(resources, "__path__", [*resources.__path__, str(tmp_path)])
    ours = templates().loader.mapping
    monkeypatch.setitem(ours, "service", ChoiceLoader([FileSystemLoader(tmp_path), ours["service"]]))
    yield
    sys.modules.pop(f"{resources.__name__}.probe", None)


@pytest.mark.usefixtures("added")
def test_a_page_is_a_module_and_a_template(market: PageMarket) -> None:
    app = create_app(market.settings, market.database, supervise=False, limits=ENDLESS())
    buyer, north, nobody = (Visitor(market, app, slug) for slug in ("buyer", "north", ""))
    page = buyer.get("/probe").text
    assert " jobs</p>" in page and 'href="/probe" aria-current="page">Probe' in page
    assert 'href="/probe"' in buyer.get("/jobs").text and 'href="/probe"' not in north.get("/offers").text
    assert north.get("/probe").status_code == 403 and nobody.get("/probe").status_code == 303
    assert "500 are counted" in buyer.sees(buyer.post("/probe", balance="5"))
    assert 'id="e-balance"' in buyer.post("/probe", balance="0").text
    headers = {"X-CSRF-Token": "forged"}
    assert buyer.client.post("/v1/probe", json={"balance": 5}, headers=headers).status_code == 403
    assert "/v1/probe" in app.openapi()["paths"]
