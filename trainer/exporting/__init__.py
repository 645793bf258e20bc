"""SavedModel export of a model_fn, input receivers and exporters."""
