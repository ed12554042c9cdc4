"""From users' files to arrays. Nothing is imported here, so that `databazaar.config` stays free of pandas."""
