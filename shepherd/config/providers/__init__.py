"""Providers: their settings, their types, and the file that holds them."""
