"""Shepherd from Python: this package implements `import shepherd`."""
