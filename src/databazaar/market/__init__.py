"""The market itself: one round as pure functions, and the arbiter that plays rounds until a rule stops it."""
