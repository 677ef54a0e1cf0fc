"""Providers that speak one of OpenAI's languages."""
