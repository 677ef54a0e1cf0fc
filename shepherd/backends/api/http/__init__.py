"""Requests to a provider: connections, retries, rates, and the meaning of failures."""
