"""How people play against a market: providers that register in the place of honest ones, for tests and simulations."""

from databazaar_experiments.attacks.backdoors import Backdoor, Trigger
from databazaar_experiments.attacks.collusion import Alie, Collude, Mixed
from databazaar_experiments.attacks.copies import Clones, Honest, Price, Split
from databazaar_experiments.attacks.engine import MixedEngine
from databazaar_experiments.attacks.idle import Noise, Replay, Zero
from databazaar_experiments.attacks.known import Alone, Attack, Insider, Known
from databazaar_experiments.attacks.leaks import Leak
from databazaar_experiments.attacks.poisons import Alternate, Boost, Flip, Selective, Sign

__all__ = [
    "Alie",
    "Alone",
    "Alternate",
    "Attack",
    "Backdoor",
    "Boost",
    "Clones",
    "Collude",
    "Flip",
    "Honest",
    "Insider",
    "Known",
    "Leak",
    "Mixed",
    "MixedEngine",
    "Noise",
    "Price",
    "Replay",
    "Selective",
    "Sign",
    "Split",
    "Trigger",
    "Zero",
]
