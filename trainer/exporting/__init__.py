"""SavedModel exports of a model_fn, and exporters."""
