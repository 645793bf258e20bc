"""The REST frontend: TensorFlow Serving's RESTful API over HTTP."""
