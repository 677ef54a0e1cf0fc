"""Several servers with one model as one backend: checked, retried elsewhere, met by their cache."""
