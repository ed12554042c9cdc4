"""Calls spread over the workers of a Ray cluster, by a process of our own that may die. Knows nothing of markets."""

from databazaar.cluster.link import Call, Link, Settings, SharedArray, processors_here, refuse_without_ray

__all__ = ["Call", "Link", "Settings", "SharedArray", "processors_here", "refuse_without_ray"]
