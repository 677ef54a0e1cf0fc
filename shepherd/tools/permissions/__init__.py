"""Permissions as data: rules, what matches them, who is asked, and where answers are kept."""
