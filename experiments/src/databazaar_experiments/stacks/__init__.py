"""Stacks of use to a few, under `databazaar.stacks`: an engine is asked for them by name.

VectorizedEngine(task, providers, device, stacks=PAPER_STACKS)
"""

PAPER_STACKS = ("fused", "dual", "alone", "stacked")
"""What the paper's evaluation tries, the fastest first."""
