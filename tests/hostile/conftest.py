"""Hostile parties: a registered provider, an arbiter, a folder and a network that want to do harm. Every promise of
SECURITY.md has its attack in here, with real processes and real files."""
