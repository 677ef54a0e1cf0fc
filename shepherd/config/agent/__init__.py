"""The settings of an agent: what it reads of its user and its project."""
