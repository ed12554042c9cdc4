"""`/v1`: everything that people do at the hub, for programs. Each module has a router and calls deeds of the service."""
