"""Shepherd from Python: what `import shepherd` gives."""
