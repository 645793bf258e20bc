"""The adapter through which trainer.keras uses models of tf_keras, which is Keras 2."""
