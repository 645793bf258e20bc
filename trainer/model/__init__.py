"""What a model_fn returns, and how it is called."""
