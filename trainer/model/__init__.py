"""The user's model_fn: the code that calls the function, and the specs that it returns."""
