"""Permissions as data: rules, matching, approval, and the store of answers."""
