"""The least that the inspection of updates needs to see anything."""

from __future__ import annotations

FEWEST_ROWS = 20
"""With fewer in a part, a mean of them has no standard error that one could rely on."""
CHANGES = 6
"""So many of the model's last changes are looked at as public knowledge, and beside them what it changed since rounds
0, 1, 2, 4, 8, …: as many as there is room for."""
ROOM = 16
"""For each of these changes a vector must have so many dimensions: else honest updates would lie in their span too."""
FEW_DIMENSIONS = 2 * ROOM
"""In fewer, honest updates lie in a public span, and are like one another, by chance."""
