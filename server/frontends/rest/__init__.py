"""The REST frontend: the REST APIs of TensorFlow Serving and KServe V2 over HTTP."""
