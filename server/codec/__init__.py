"""Converts between arrays and the JSON of TensorFlow Serving's REST API.

Source: https://www.tensorflow.org/tfx/serving/api_rest, tensorflow_serving/util/json_tensor.cc.
"""
