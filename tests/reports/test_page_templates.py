"""Templates wherever the packages lie: in a folder, in an archive, and in somebody else's package that extends ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import databazaar
from databazaar.reports.pages import page

OTHER = """{% extends "databazaar/base.html.jinja" %}
{% from "databazaar/macros.html.jinja" import badge %}
{% set brand = "acme" %}
{% block policy %}{% endblock %}
{% block content %}{{ badge(word, "bad") }}{% endblock %}
{% block footer %}<footer>Sent by a server.</footer>{% endblock %}
"""
ASK = """
from databazaar.reports.pages import asset, page
from databazaar.reports import pages
assert ".zip" in pages.__file__, pages.__file__
print(page("databazaar/base.html.jinja", title="<From an archive>", brand="a test"))
"""


def test_another_package_extends_our_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    templates = tmp_path / "acme_pages" / "templates"
    templates.mkdir(parents=True)
    (templates.parent / "__init__.py").write_text("")
    (templates / "account.html.jinja").write_text(OTHER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = page("acme_pages/account.html.jinja", title="An account", word="<overdrawn>")
    assert '<span class="badge bad">' in shown and "&lt;overdrawn&gt;" in shown and "Sent by a server." in shown
    assert "Content-Security-Policy" not in shown and "complete in itself" not in shown


@pytest.mark.process
def test_pages_come_out_of_an_archive(tmp_path: Path) -> None:
    """A wheel is an archive of the package's folder; here it is read without being unpacked."""
    source = Path(databazaar.__file__).parent
    with zipfile.ZipFile(tmp_path / "databazaar.zip", "w") as archive:
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("databazaar") / path.relative_to(source))
    ask = f"import sys; sys.path.insert(0, {str(tmp_path / 'databazaar.zip')!r}){ASK}"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<!DOCTYPE html>") and "&lt;From an archive&gt;" in done.stdout
    assert "<style>\n:root" in done.stdout and '"use strict"' in done.stdout
