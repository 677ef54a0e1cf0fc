"""Shepherd from Python: what `import shepherd` offers stands here."""
