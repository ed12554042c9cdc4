"""A consumer's own arbiter, and the hub's side of it without HTTP: questions and entries go from hand to hand."""
