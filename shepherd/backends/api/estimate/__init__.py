"""Estimates the tokens of a prompt if only the provider has the tokenizer."""

from shepherd.backends.api.estimate.estimator import TokenEstimator
from shepherd.backends.api.estimate.images import ImageRule
from shepherd.backends.api.estimate.priors import FamilyPrior, prior_for

__all__ = ["FamilyPrior", "ImageRule", "TokenEstimator", "prior_for"]
