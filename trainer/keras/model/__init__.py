"""Access to a Keras model that is converted to a TPUEstimator.

The modules of this package read the model's variables and names, find its unsupported options, and
trace its functions. An adapter hides the differences between Keras 3 and tf_keras.
"""
