"""What the arbiter measures of updates: the figures that verdicts are made of (databazaar/defence)."""
