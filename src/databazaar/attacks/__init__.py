"""How people play against a market: providers that register in the place of honest ones, for tests and simulations."""

from databazaar.attacks.backdoors import Backdoor, Trigger
from databazaar.attacks.collusion import Alie, Collude, Mixed
from databazaar.attacks.copies import Clones, Honest, Price, Split
from databazaar.attacks.engine import MixedEngine
from databazaar.attacks.idle import Noise, Replay, Zero
from databazaar.attacks.known import Alone, Attack, Insider, Known
from databazaar.attacks.leaks import Leak
from databazaar.attacks.poisons import Alternate, Boost, Flip, Selective, Sign

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
