"""Vectors of texts, and the order of documents for a query, over HTTP."""
