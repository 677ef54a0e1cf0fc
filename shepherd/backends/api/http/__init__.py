"""Requests to a provider: connections, retries, rates, and what failures mean."""
