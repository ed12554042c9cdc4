"""What the hub shows: `/v1` for programs, pages for people, and the events of a job as they happen."""
