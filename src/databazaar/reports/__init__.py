"""What a person reads after a run: figures, the HTML report and the revenue statement."""
