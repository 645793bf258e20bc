"""Regress: what its signatures are like, and how their outputs are read.

The texts are TensorFlow Serving's.
Source: tensorflow_serving/servables/tensorflow/regressor.cc.
"""

from collections.abc import Mapping

import numpy as np

from server.dataplane import examples, method_names
from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

OUTPUTS = "outputs"


def outputs_of(signature: Signature, check_method_name: bool) -> list[str]:
    """The outputs to ask of a signature that regresses: just one.

    Raises:
      InvalidInput: it is no such signature.
    """
    if check_method_name:
        method_names.check_regress(signature)
    examples.check_one_input(signature)
    if len(signature.outputs) != 1:
        raise InvalidInput("Expected one output Tensor.")
    if examples.ALIAS not in signature.inputs:
        raise InvalidInput(
            f"No regression inputs found in SignatureDef: {examples.show(signature)}"
        )
    if OUTPUTS not in signature.outputs:
        raise InvalidInput(
            f"No regression outputs found in SignatureDef: {examples.show(signature)}"
        )
    return [OUTPUTS]


def read(outputs: Mapping[str, Array], count: int) -> Array:
    """The values [count] among the outputs for so many examples.

    Raises:
      InvalidInput: they are of another type or shape than an answer has.
    """
    values = outputs[OUTPUTS]
    if not (values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)):
        raise InvalidInput(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{examples.show_shape(values)}"
        )
    if len(values) != count:
        raise InvalidInput(
            f"Input batch size did not match output batch size: {count} vs. {len(values)}"
        )
    if values.dtype != np.float32:
        # Two spaces, as TensorFlow Serving has it.
        raise InvalidInput(
            f"Expected output Tensor of DT_FLOAT.  Got: {examples.show_type(values)}"
        )
    return values.reshape(-1)
