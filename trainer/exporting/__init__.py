"""Exports a model_fn as a SavedModel; defines the input receivers and exporters of tf.estimator."""
