"""Uploaded tables: kept under their SHA-256 until their owner or the hub's rules let them go."""

from databazaar.service.files.deleting import delete, remove_unnamed
from databazaar.service.files.keeping import PIECE, STALE, keep, refuse_over_quota, room_left, shown_name, suffix_of
from databazaar.service.files.looking import Kept, Use, hold, outline_of, own_file, own_files, path_of, room_taken
from databazaar.service.files.sweeping import delete_due, remove_orphans
from databazaar.service.outlines import Outline, outline

__all__ = [
    "PIECE",
    "STALE",
    "Kept",
    "Outline",
    "Use",
    "delete",
    "delete_due",
    "hold",
    "keep",
    "outline",
    "outline_of",
    "own_file",
    "own_files",
    "path_of",
    "refuse_over_quota",
    "remove_orphans",
    "remove_unnamed",
    "room_left",
    "room_taken",
    "shown_name",
    "suffix_of",
]
