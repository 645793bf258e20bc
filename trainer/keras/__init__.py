"""Converts compiled Keras models to TPUEstimators.

The models are of Keras 3 or of tf_keras, which is Keras 2.
"""

from trainer.keras.conversion import model_to_tpu_estimator as model_to_tpu_estimator
from trainer.keras.estimator import KerasTPUEstimator as KerasTPUEstimator
from trainer.keras.serving_inputs import serving_input_receiver_fn as serving_input_receiver_fn
from trainer.keras.to_keras import to_keras as to_keras

__all__ = [
    "KerasTPUEstimator",
    "model_to_tpu_estimator",
    "serving_input_receiver_fn",
    "to_keras",
]
