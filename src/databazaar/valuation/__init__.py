"""What providers are worth: Shapley values and their relatives, one call each, all with one kind of result."""

from databazaar.valuation.compare import METHODS, Comparison, Outcome, compare
from databazaar.valuation.exact import exact_shapley, shapley_exact
from databazaar.valuation.fed_shapley import fed_shapley
from databazaar.valuation.g_shapley import g_shapley
from databazaar.valuation.games import Game
from databazaar.valuation.gtg_shapley import gtg_shapley
from databazaar.valuation.leave_one_out import leave_one_out, leave_one_out_game
from databazaar.valuation.monte_carlo import shapley_monte_carlo, tmc_shapley
from databazaar.valuation.payouts import payouts
from databazaar.valuation.result import Cost, Trained, ValuationResult
from databazaar.valuation.stability import Stability, stability
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
    "Cost",
    "Game",
    "GhorbaniZou",
    "MaxEvaluations",
    "MaxOracleCalls",
    "MaxPermutations",
    "MaxSeconds",
    "Outcome",
    "Rule",
    "Stability",
    "StandardErrorBelow",
    "Trained",
    "ValuationResult",
    "compare",
    "exact_shapley",
    "fed_shapley",
    "g_shapley",
    "gtg_shapley",
    "leave_one_out",
    "leave_one_out_game",
    "payouts",
    "shapley_exact",
    "shapley_monte_carlo",
    "stability",
    "tmc_shapley",
]
