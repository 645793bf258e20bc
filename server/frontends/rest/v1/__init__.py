"""TensorFlow Serving's REST API: the routes below /v1/."""
