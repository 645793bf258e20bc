"""The JSON of the REST API ↔ arrays. Source: TensorFlow Serving's RESTful API."""
