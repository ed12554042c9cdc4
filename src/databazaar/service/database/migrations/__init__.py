"""The steps from one version's tables to the next one's; `databazaar.service.database.upgrade` takes them."""
