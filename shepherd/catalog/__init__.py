"""The catalogue of models: finding and downloading their files."""
