"""The estimators, and the functions and hooks that work on an estimator."""
