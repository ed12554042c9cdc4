"""market.toml: its settings, the files that it names, and the job that comes of both."""
