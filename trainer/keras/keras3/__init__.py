"""The adapter for Keras 3."""
