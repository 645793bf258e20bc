"""Implements Regress: checks signatures, and converts a model's outputs to values.

The error texts are those of TensorFlow Serving. Source:
tensorflow_serving/servables/tensorflow/regressor.cc.
"""

from collections.abc import Mapping

import numpy as np

from server.dataplane import example_method, method_names
from server.dataplane.example_method import ExampleMethod
from server.dataplane.results import Regression
from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

OUTPUTS = "outputs"


def _select_outputs(signature: Signature, check_method_name: bool) -> list[str]:
    if check_method_name:
        method_names.check_regress(signature)
    example_method.check_one_input(signature)
    if len(signature.outputs) != 1:
        raise InvalidInput("Expected one output Tensor.")
    if example_method.ALIAS not in signature.inputs:
        raise InvalidInput(
            "No regression inputs found in SignatureDef: "
            f"{example_method.format_signature(signature)}"
        )
    if OUTPUTS not in signature.outputs:
        raise InvalidInput(
            "No regression outputs found in SignatureDef: "
            f"{example_method.format_signature(signature)}"
        )
    return [OUTPUTS]


def _read_answer(
    model: str, version: int, name: str, outputs: Mapping[str, Array], count: int
) -> Regression:
    values = outputs[OUTPUTS]
    if not (values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)):
        raise InvalidInput(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{example_method.format_shape(values)}"
        )
    if len(values) != count:
        raise InvalidInput(
            f"Input batch size did not match output batch size: {count} vs. {len(values)}"
        )
    if values.dtype != np.float32:
        # This error text has two spaces in a row, because TensorFlow Serving's error text has them.
        raise InvalidInput(
            f"Expected output Tensor of DT_FLOAT.  Got: {example_method.format_type(values)}"
        )
    return Regression(model, version, name, values.reshape(-1))


METHOD = ExampleMethod("Regress", _select_outputs, _read_answer)
"""The method Regress, whose only output has the shape [examples] or [examples, 1]."""
