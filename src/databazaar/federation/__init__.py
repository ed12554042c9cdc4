"""Providers on their own machines, reached through NVIDIA FLARE: opaque bytes out, opaque bytes back.

Nothing here knows of markets, learning or ledgers. `transport` is the seam the arbiter's side uses;
`onboarding`, `server` and `provider` are what the command line calls. Only `site` imports FLARE.
"""
