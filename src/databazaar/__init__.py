"""databazaar: a budget goes in; a trained model and a settled revenue statement come out."""

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
