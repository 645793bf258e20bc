"""Estimator, TPUEstimator and what acts on them."""
