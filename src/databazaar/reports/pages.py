"""HTML pages from templates: whatever a template shows is escaped and printable, unless it is markup of our own.

A template is named by the package that brings it: `databazaar/run.html.jinja` lies in our templates,
`acme_pages/account.html.jinja` in those of the package acme_pages, and may extend ours. What somebody else has chosen
(ids, owners, titles, reasons, currencies) goes through the filter `named`: it cannot reorder the text around it then.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from importlib.metadata import version

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup

from databazaar import __version__
from databazaar.display import shown
from databazaar.money import Currency
from databazaar.reports.words import amount, count, date, number, percent, signed_number

OURS = "databazaar"
"""The prefix of our own templates."""
JOINER = "\u200d"


def page(template: str, **given: object) -> str:
    """The page that the template makes of what it is given. The same arguments give the same bytes."""
    package = template.partition("/")[0]
    return environment(package, package).get_template(template).render(given)


@cache
def environment(prefix: str, package: str) -> Environment:
    """Where templates are found: the package's own under `prefix`, and ours. A server makes its pages with one too."""
    packages = {prefix: package, OURS: "databazaar.reports"}
    made = Environment(
        loader=PrefixLoader({prefix: PackageLoader(name) for prefix, name in packages.items()}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: _words(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["named"] = named
    functions = (amount, asset, count, date, digest, generator, money, number, percent, signed_number)
    made.globals.update({function.__name__: function for function in functions})
    return made


def _words(text: object) -> str:
    """Words as a page shows them, with the joiner that some letters and smileys are made with."""
    return JOINER.join(shown(part, None) for part in str(text).split(JOINER))


def named(text: object) -> Markup:
    """Words of somebody else, escaped and isolated so that they cannot reorder the text around them.

    >>> named("<north>\\x00")
    Markup('<bdi>&lt;north&gt;�</bdi>')
    """
    name = _words(text)
    return Markup("<bdi>{}</bdi>").format(name if name.strip() else "(no name)")


def money(currency: Currency, minor: int) -> Markup:
    """An amount with its currency and thousands apart.

    >>> money(Currency("EUR", 2), 1234550)
    Markup('12,345.50 <bdi>EUR</bdi>')
    """
    return Markup("{} {}").format(amount(currency, minor), named(currency.name))


@cache
def asset(name: str) -> Markup:
    """A file of ours that stands in the page as it is: the style or the script."""
    return Markup(resources.files("databazaar.reports").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704


def generator() -> str:
    """What writes a page: the same one gives the same bytes."""
    return f"databazaar {__version__}, matplotlib {version('matplotlib')}"


def digest(script: str) -> str:
    """What the page's policy knows a script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
