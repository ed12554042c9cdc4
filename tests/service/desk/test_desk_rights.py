"""Every deed against everybody who may not do it: another organisation, the wrong role, a token without the right.

The table names all deeds: one that is not in it fails the first test.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session

from conftest_types import MakeUrl
from databazaar.service import contracts, files, jobs, members, offers, outbox
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.errors import DeniedError, MissingError
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, desk_market, table
