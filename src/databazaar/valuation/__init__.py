"""What providers are worth: Shapley values and their relatives, all with one kind of result."""

from databazaar.row_values import RowSums
from databazaar.valuation.comparison import Comparison, MethodOutcome, Stability, compare, stability
from databazaar.valuation.exact import ExactShapley, LeaveOneOut, leave_one_out_game, shapley_exact
from databazaar.valuation.games import Game
from databazaar.valuation.in_run import InRunShapley, row_values
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
    "InRunShapley",
    "LeaveOneOut",
    "MaxPermutations",
    "MaxSeconds",
    "Method",
    "MethodOutcome",
    "RowSums",
    "Rule",
    "Stability",
    "StandardErrorBelow",
    "TMCShapley",
    "Trained",
    "ValuationResult",
    "compare",
    "leave_one_out_game",
    "payouts",
    "row_values",
    "shapley_exact",
    "shapley_monte_carlo",
    "stability",
]
