"""databazaar: a budget goes in; a trained model and a settled revenue statement come out.

Names are imported when they are first used: the command line, and the processes that only pass messages between
providers, start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databazaar.aggregators import Aggregator, Mean
    from databazaar.aggregators.check import check_aggregator
    from databazaar.engines import Ask, Engine, LoopEngine, Replies, VectorizedEngine
    from databazaar.engines.check import check_engine
    from databazaar.errors import BazaarError, LedgerError
    from databazaar.learning.models import build_model
    from databazaar.learning.oracles import FullGradient, LocalSGD, StochasticGradient
    from databazaar.learning.partial_fit import PartialFit
    from databazaar.learning.task import Cosine, Halving
    from databazaar.market.arbiter import Arbiter
    from databazaar.market.run import Progress
    from databazaar.money import Currency
    from databazaar.parties import Consumer, Provider
    from databazaar.payments import Payment, PricePerAccess
    from databazaar.payments.check import check_payment
    from databazaar.roster import Offer, Purse, Roster
    from databazaar.runs.report import Report
    from databazaar.samplers import OSMD, Sampler, Uniform
    from databazaar.samplers.check import check_sampler
    from databazaar.stops import History, NoProgress, Stop, TargetUtility
    from databazaar.stops.check import check_stop

__version__ = "0.2.0"

__all__ = [
    "OSMD",
    "Aggregator",
    "Arbiter",
    "Ask",
    "BazaarError",
    "Consumer",
    "Cosine",
    "Currency",
    "Engine",
    "FullGradient",
    "Halving",
    "History",
    "LedgerError",
    "LocalSGD",
    "LoopEngine",
    "Mean",
    "NoProgress",
    "Offer",
    "PartialFit",
    "Payment",
    "PricePerAccess",
    "Progress",
    "Provider",
    "Purse",
    "Replies",
    "Report",
    "Roster",
    "Sampler",
    "StochasticGradient",
    "Stop",
    "TargetUtility",
    "Uniform",
    "VectorizedEngine",
    "build_model",
    "check_aggregator",
    "check_engine",
    "check_payment",
    "check_sampler",
    "check_stop",
]

_MODULES = {
    "Aggregator": "aggregators",
    "Mean": "aggregators",
    "check_aggregator": "aggregators.check",
    "Ask": "engines",
    "Engine": "engines",
    "LoopEngine": "engines",
    "Replies": "engines",
    "VectorizedEngine": "engines",
    "check_engine": "engines.check",
    "BazaarError": "errors",
    "LedgerError": "errors",
    "build_model": "learning.models",
    "FullGradient": "learning.oracles",
    "LocalSGD": "learning.oracles",
    "StochasticGradient": "learning.oracles",
    "PartialFit": "learning.partial_fit",
    "Cosine": "learning.task",
    "Halving": "learning.task",
    "Arbiter": "market.arbiter",
    "Progress": "market.run",
    "Currency": "money",
    "Consumer": "parties",
    "Provider": "parties",
    "Payment": "payments",
    "PricePerAccess": "payments",
    "check_payment": "payments.check",
    "Offer": "roster",
    "Purse": "roster",
    "Roster": "roster",
    "Report": "runs.report",
    "OSMD": "samplers",
    "Sampler": "samplers",
    "Uniform": "samplers",
    "check_sampler": "samplers.check",
    "History": "stops",
    "NoProgress": "stops",
    "Stop": "stops",
    "TargetUtility": "stops",
    "check_stop": "stops.check",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"databazaar.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
