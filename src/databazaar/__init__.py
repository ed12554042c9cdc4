"""databazaar: a budget goes in; a trained model and a settled revenue statement come out.

Names are imported when they are first used: the command line, and the processes that only pass messages between
providers, start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databazaar.aggregators import Mean
    from databazaar.defence import Defence
    from databazaar.errors import BazaarError, LedgerError
    from databazaar.learning.models import build_model
    from databazaar.learning.oracles import LocalSGD
    from databazaar.market.arbiter import Arbiter
    from databazaar.market.callback import Callback
    from databazaar.market.purchase import judge_purchase
    from databazaar.market.quoting import Quote
    from databazaar.market.run import Progress
    from databazaar.parties import Consumer, Provider
    from databazaar.payments import PricePerAccess
    from databazaar.runs.report import Report
    from databazaar.runs.trained import load_model, load_run
    from databazaar.samplers import OSMD, Adaptive, Uniform
    from databazaar.sklearn import MarketClassifier as MarketClassifier
    from databazaar.sklearn import MarketRegressor as MarketRegressor
    from databazaar.stops import NoProgress, TargetUtility

__version__ = "0.7.0"

__all__ = [
    "OSMD",
    "Adaptive",
    "Arbiter",
    "BazaarError",
    "Callback",
    "Consumer",
    "Defence",
    "LedgerError",
    "LocalSGD",
    "Mean",
    "NoProgress",
    "PricePerAccess",
    "Progress",
    "Provider",
    "Quote",
    "Report",
    "TargetUtility",
    "Uniform",
    "build_model",
    "judge_purchase",
    "load_model",
    "load_run",
]

__optional__ = ["MarketClassifier", "MarketRegressor"]
"""Public names that need an extra, so `from databazaar import *` leaves them out."""

_MODULES = {
    "Mean": "aggregators",
    "Defence": "defence",
    "BazaarError": "errors",
    "LedgerError": "errors",
    "build_model": "learning.models",
    "LocalSGD": "learning.oracles",
    "Arbiter": "market.arbiter",
    "Callback": "market.callback",
    "Quote": "market.quoting",
    "Progress": "market.run",
    "judge_purchase": "market.purchase",
    "Consumer": "parties",
    "Provider": "parties",
    "PricePerAccess": "payments",
    "load_run": "runs.trained",
    "Report": "runs.report",
    "load_model": "runs.trained",
    "OSMD": "samplers",
    "Adaptive": "samplers",
    "Uniform": "samplers",
    "MarketClassifier": "sklearn",
    "MarketRegressor": "sklearn",
    "NoProgress": "stops",
    "TargetUtility": "stops",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"databazaar.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *__optional__})
