"""The version of the package; the build reads it from here."""

__version__ = "1.0.0rc1"
