"""Export of models without an Estimator: a function, a tf.Module or a Keras model.

TensorFlow's `tf.saved_model.save` writes the metagraph {serve} and the variables. The metagraph
{serve, tpu} is traced over the same variables and added to the same SavedModel.
"""

from tpuserve.export.functional.api import export

__all__ = ["export"]
