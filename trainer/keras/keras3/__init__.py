"""The adapter through which trainer.keras uses models of Keras 3."""
