"""What a hub has, one resource a module: its API, its pages and their forms. A module here is found by itself."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from databazaar.service.http.routes import Routes


def all_routes() -> list[Routes]:
    """Those of every module of this package, in the order of their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").routes for name in names]
