"""The two servers, started from the settings."""
