"""Commands about the models that this machine can run."""
