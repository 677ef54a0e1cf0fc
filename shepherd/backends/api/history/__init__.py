"""A conversation made fit for an API that takes less than a session holds."""
