"""Settings: sections with their ranges, layers of files, providers, keys, and paths."""
