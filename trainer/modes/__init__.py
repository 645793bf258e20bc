"""Implements the modes of an Estimator: train, evaluate and predict, on any backend."""
