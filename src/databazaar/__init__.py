"""databazaar: a budget goes in; a trained model and a settled revenue statement come out.

Names are imported when they are first used: the command line, and the processes that only pass messages between
providers, start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databazaar.arbiter import Arbiter, Progress
    from databazaar.checks import check_engine, check_sampler
    from databazaar.consumer import Consumer
    from databazaar.engines import Ask, Engine, LoopEngine, Replies, VectorizedEngine
    from databazaar.errors import BazaarError, LedgerError
    from databazaar.models import build_model
    from databazaar.money import Currency
    from databazaar.oracles import FullGradient, LocalSGD, StochasticGradient
    from databazaar.provider import Provider
    from databazaar.report import Report
    from databazaar.samplers import OSMD, Sampler, Uniform
    from databazaar.task import Halving

__version__ = "0.1.0"

__all__ = [
    "OSMD",
    "Arbiter",
    "Ask",
    "BazaarError",
    "Consumer",
    "Currency",
    "Engine",
    "FullGradient",
    "Halving",
    "LedgerError",
    "LocalSGD",
    "LoopEngine",
    "Progress",
    "Provider",
    "Replies",
    "Report",
    "Sampler",
    "StochasticGradient",
    "Uniform",
    "VectorizedEngine",
    "build_model",
    "check_engine",
    "check_sampler",
]

_MODULES = {
    "Arbiter": "arbiter",
    "Progress": "arbiter",
    "check_engine": "checks",
    "check_sampler": "checks",
    "Consumer": "consumer",
    "Ask": "engines",
    "Engine": "engines",
    "LoopEngine": "engines",
    "Replies": "engines",
    "VectorizedEngine": "engines",
    "BazaarError": "errors",
    "LedgerError": "errors",
    "build_model": "models",
    "Currency": "money",
    "FullGradient": "oracles",
    "LocalSGD": "oracles",
    "StochasticGradient": "oracles",
    "Provider": "provider",
    "Report": "report",
    "OSMD": "samplers",
    "Sampler": "samplers",
    "Uniform": "samplers",
    "Halving": "task",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"databazaar.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
