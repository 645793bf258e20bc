"""The REST face: TensorFlow Serving's RESTful API on FastAPI."""
