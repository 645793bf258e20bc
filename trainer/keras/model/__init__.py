"""Access to a Keras model that is converted to a TPUEstimator.

The modules read its variables and names, find unsupported options, and trace its functions. An
adapter hides the differences between Keras 3 and tf_keras.
"""
