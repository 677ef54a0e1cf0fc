"""`shepherd launch`: other coding agents on a model of this machine."""
