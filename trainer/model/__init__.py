"""Calls the user's model_fn, and defines and checks the EstimatorSpecs that it returns."""
