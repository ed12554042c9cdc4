"""What providers are worth: Shapley values and their relatives, one call each, all with one kind of result."""

from databazaar.valuation.comparison import Comparison, MethodOutcome, compare
from databazaar.valuation.context import Context
from databazaar.valuation.exact import ExactShapley, exact_shapley, shapley_exact
from databazaar.valuation.federated import FedShapley, fed_shapley
from databazaar.valuation.games import Game
from databazaar.valuation.gradient import GShapley, g_shapley
from databazaar.valuation.loo import LeaveOneOut, leave_one_out, leave_one_out_game
from databazaar.valuation.method import METHODS, Method
from databazaar.valuation.monte_carlo import TMCShapley, shapley_monte_carlo, tmc_shapley
from databazaar.valuation.rank_stability import Stability, stability
from databazaar.valuation.result import Cost, Trained, ValuationResult, payouts
from databazaar.valuation.stopping import (
    BackCheck,
    GhorbaniZou,
    MaxEvaluations,
    MaxOracleCalls,
    MaxPermutations,
    MaxSeconds,
    Rule,
    StandardErrorBelow,
)

__all__ = [
    "METHODS",
    "BackCheck",
    "Comparison",
    "Context",
    "Cost",
    "ExactShapley",
    "FedShapley",
    "GShapley",
    "Game",
    "GhorbaniZou",
    "LeaveOneOut",
    "MaxEvaluations",
    "MaxOracleCalls",
    "MaxPermutations",
    "MaxSeconds",
    "Method",
    "MethodOutcome",
    "Rule",
    "Stability",
    "StandardErrorBelow",
    "TMCShapley",
    "Trained",
    "ValuationResult",
    "compare",
    "exact_shapley",
    "fed_shapley",
    "g_shapley",
    "leave_one_out",
    "leave_one_out_game",
    "payouts",
    "shapley_exact",
    "shapley_monte_carlo",
    "stability",
    "tmc_shapley",
]
