"""What programs do with their arguments: which read, which write, which run others."""
