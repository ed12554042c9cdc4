"""From users' files to arrays. Nothing is imported here: settings are read without pandas."""
