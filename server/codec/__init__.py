"""Converts between the JSON of the REST API and arrays.

Source: https://www.tensorflow.org/tfx/serving/api_rest, tensorflow_serving/util/json_tensor.cc.
"""
