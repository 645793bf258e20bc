"""The door for models that no Estimator made: a function, a tf.Module or a Keras model.

TensorFlow's own `tf.saved_model.save` writes the metagraph {serve} with the variables; the
metagraph {serve, tpu} is traced over the same variables and put beside it.
"""

from tpuserve.export.functional.api import export

__all__ = ["export"]
