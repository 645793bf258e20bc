"""Exports models that are not Estimators: a function, a tf.Module or a Keras model.

TensorFlow's `tf.saved_model.save` writes the metagraph {serve} and the variables. The metagraph
{serve, tpu} is traced with the same variables, and added to the same SavedModel.
"""

from tpuserve.export.functional.api import export

__all__ = ["export"]
