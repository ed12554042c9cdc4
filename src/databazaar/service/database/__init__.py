"""What the hub remembers: its tables, and how to reach them on SQLite and PostgreSQL."""
