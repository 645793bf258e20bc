"""The model_fn: the call of the user's function, and the spec that the function returns."""
