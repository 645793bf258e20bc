"""Exports a model_fn as a SavedModel; has the input receivers and exporters of tf.estimator."""
