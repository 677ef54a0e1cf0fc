"""A layer over the working directory: what a command changes stands there until it is committed."""
