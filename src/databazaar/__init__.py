"""databazaar: a budget goes in; a trained model and a settled revenue statement come out.

Names are imported when they are first used: the command line, and the processes that only pass messages between
providers, start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databazaar.aggregators import (
        Aggregator,
        CentredClipping,
        FLTrust,
        GeometricMedian,
        Krum,
        Mean,
        Median,
        TrimmedMean,
    )
    from databazaar.aggregators.check import check_aggregator
    from databazaar.callbacks import MLflowCallback, TensorBoardCallback
    from databazaar.defence import Defence
    from databazaar.engines import Ask, Engine, LoopEngine, Replies, VectorizedEngine
    from databazaar.engines.check import check_engine
    from databazaar.errors import BazaarError, LedgerError
    from databazaar.learning.models import build_model
    from databazaar.learning.oracles import FullGradient, LocalSGD, StochasticGradient
    from databazaar.learning.partial_fit import PartialFit
    from databazaar.learning.task import Cosine, Halving
    from databazaar.market.arbiter import Arbiter
    from databazaar.market.callback import Callback
    from databazaar.market.quoting import Quote
    from databazaar.market.run import Progress
    from databazaar.market.worth import judge_purchase
    from databazaar.money import Currency
    from databazaar.parties import Consumer, Provider
    from databazaar.payments import Payment, PricePerAccess, PricePerRow
    from databazaar.payments.check import check_payment
    from databazaar.roster import Offer, Purse, Roster
    from databazaar.runs.brought import Brought
    from databazaar.runs.closing import close_run
    from databazaar.runs.finished import FinishedRun, load_run
    from databazaar.runs.report import Report
    from databazaar.runs.trained import TrainedModel, load_model
    from databazaar.runs.worth import Worth
    from databazaar.samplers import OSMD, Sampler, Thrifty, Uniform
    from databazaar.samplers.check import check_sampler
    from databazaar.sklearn import MarketClassifier as MarketClassifier
    from databazaar.sklearn import MarketRegressor as MarketRegressor
    from databazaar.stops import History, NoProgress, Stop, TargetUtility
    from databazaar.stops.check import check_stop

__version__ = "0.7.0"

__all__ = [
    "OSMD",
    "Aggregator",
    "Arbiter",
    "Ask",
    "BazaarError",
    "Brought",
    "Callback",
    "CentredClipping",
    "Consumer",
    "Cosine",
    "Currency",
    "Defence",
    "Engine",
    "FLTrust",
    "FinishedRun",
    "FullGradient",
    "GeometricMedian",
    "Halving",
    "History",
    "Krum",
    "LedgerError",
    "LocalSGD",
    "LoopEngine",
    "MLflowCallback",
    "Mean",
    "Median",
    "NoProgress",
    "Offer",
    "PartialFit",
    "Payment",
    "PricePerAccess",
    "PricePerRow",
    "Progress",
    "Provider",
    "Purse",
    "Quote",
    "Replies",
    "Report",
    "Roster",
    "Sampler",
    "StochasticGradient",
    "Stop",
    "TargetUtility",
    "TensorBoardCallback",
    "Thrifty",
    "TrainedModel",
    "TrimmedMean",
    "Uniform",
    "VectorizedEngine",
    "Worth",
    "build_model",
    "check_aggregator",
    "check_engine",
    "check_payment",
    "check_sampler",
    "check_stop",
    "close_run",
    "judge_purchase",
    "load_model",
    "load_run",
]

__optional__ = ["MarketClassifier", "MarketRegressor"]
"""Public names that need an extra, so `from databazaar import *` leaves them out."""

_MODULES = {
    "Aggregator": "aggregators",
    "CentredClipping": "aggregators",
    "FLTrust": "aggregators",
    "GeometricMedian": "aggregators",
    "Krum": "aggregators",
    "Mean": "aggregators",
    "Median": "aggregators",
    "TrimmedMean": "aggregators",
    "check_aggregator": "aggregators.check",
    "MLflowCallback": "callbacks",
    "TensorBoardCallback": "callbacks",
    "Defence": "defence",
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
    "Callback": "market.callback",
    "Quote": "market.quoting",
    "Progress": "market.run",
    "judge_purchase": "market.worth",
    "Currency": "money",
    "Consumer": "parties",
    "Provider": "parties",
    "Payment": "payments",
    "PricePerAccess": "payments",
    "PricePerRow": "payments",
    "check_payment": "payments.check",
    "Offer": "roster",
    "Purse": "roster",
    "Roster": "roster",
    "FinishedRun": "runs.finished",
    "load_run": "runs.finished",
    "Brought": "runs.brought",
    "close_run": "runs.closing",
    "Report": "runs.report",
    "TrainedModel": "runs.trained",
    "load_model": "runs.trained",
    "Worth": "runs.worth",
    "OSMD": "samplers",
    "Sampler": "samplers",
    "Thrifty": "samplers",
    "Uniform": "samplers",
    "check_sampler": "samplers.check",
    "MarketClassifier": "sklearn",
    "MarketRegressor": "sklearn",
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
    return sorted({*globals(), *__all__, *__optional__})
