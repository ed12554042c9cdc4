"""Samplers of use to a few: earlier candidates for the default, which stand under `databazaar.samplers`."""
