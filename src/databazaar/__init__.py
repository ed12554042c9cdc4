"""databazaar: a budget goes in; a trained model and a settled revenue statement come out.

Names are imported when they are first used: the command line, and the processes that only pass messages between
providers, start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from databazaar.engines import Ask, Engine, LoopEngine, Replies, VectorizedEngine
    from databazaar.engines.check import check_engine
    from databazaar.errors import BazaarError, LedgerError
    from databazaar.learning.models import build_model
    from databazaar.learning.oracles import FullGradient, LocalSGD, StochasticGradient
    from databazaar.learning.task import Halving
    from databazaar.market.arbiter import Arbiter, Progress
    from databazaar.money import Currency
    from databazaar.parties.consumer import Consumer
    from databazaar.parties.provider import Provider
    from databazaar.runs.report import Report
    from databazaar.samplers import OSMD, Sampler, Uniform
    from databazaar.samplers.check import check_sampler

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
    "Arbiter": "market.arbiter",
    "Progress": "market.arbiter",
    "check_engine": "engines.check",
    "check_sampler": "samplers.check",
    "Consumer": "parties.consumer",
    "Ask": "engines",
    "Engine": "engines",
    "LoopEngine": "engines",
    "Replies": "engines",
    "VectorizedEngine": "engines",
    "BazaarError": "errors",
    "LedgerError": "errors",
    "build_model": "learning.models",
    "Currency": "money",
    "FullGradient": "learning.oracles",
    "LocalSGD": "learning.oracles",
    "StochasticGradient": "learning.oracles",
    "Provider": "parties.provider",
    "Report": "runs.report",
    "OSMD": "samplers",
    "Sampler": "samplers",
    "Uniform": "samplers",
    "Halving": "learning.task",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"databazaar.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
