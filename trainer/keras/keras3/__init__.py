"""The adapter through which this package uses models of Keras 3."""
