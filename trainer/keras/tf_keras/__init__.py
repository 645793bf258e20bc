"""The adapter for tf_keras, which is Keras 2."""
