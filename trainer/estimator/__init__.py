"""Estimator and TPUEstimator, and the functions and hooks that take an estimator as an argument."""
