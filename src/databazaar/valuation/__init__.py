"""What providers are worth: Shapley values and their relatives, all with one kind of result."""

from databazaar.valuation.comparison import Comparison, MethodOutcome, Stability, compare, stability
from databazaar.valuation.exact import ExactShapley, LeaveOneOut, leave_one_out_game, shapley_exact
from databazaar.valuation.games import Game
from databazaar.valuation.method import METHODS, Context, Method
from databazaar.valuation.monte_carlo import TMCShapley, shapley_monte_carlo
from databazaar.valuation.result import Cost, Trained, ValuationResult, payouts
from databazaar.valuation.stopping import (
    BackCheck,
    GhorbaniZou,
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
    "Game",
    "GhorbaniZou",
    "LeaveOneOut",
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
    "leave_one_out_game",
    "payouts",
    "shapley_exact",
    "shapley_monte_carlo",
    "stability",
]
