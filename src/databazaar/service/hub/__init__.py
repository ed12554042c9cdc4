"""What runs jobs: the supervisor starts a process for each, follows it, and settles what it came to."""
