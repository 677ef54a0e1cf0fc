"""The helper program that becomes a boxed command, started ahead of time in its groups."""
