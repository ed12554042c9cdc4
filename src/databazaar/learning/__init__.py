"""What is learned, and from what: models, losses, oracles over a provider's data, and utilities."""
