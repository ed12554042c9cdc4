"""Stacks of use to a few, which an engine tries before its own.

VectorizedEngine(task, providers, device, stacks=PAPER_STACKS)
"""

from databazaar_experiments.stacks.cnn import FusedCNN
from databazaar_experiments.stacks.dual import DualSGD

PAPER_STACKS = (FusedCNN, DualSGD)
"""What the paper's evaluation tries, the fastest first."""
