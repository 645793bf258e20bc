"""Implements Classify: checks signatures, and converts a model's outputs to classes and scores.

The error texts are those of TensorFlow Serving. Source:
tensorflow_serving/servables/tensorflow/classifier.cc.
"""

from collections.abc import Mapping

import numpy as np

from server.dataplane import example_method, method_names
from server.dataplane.example_method import ExampleMethod
from server.dataplane.results import Classification
from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

CLASSES = "classes"


SCORES = "scores"


def _select_outputs(signature: Signature, check_method_name: bool) -> list[str]:
    if check_method_name:
        method_names.check_classify(signature)
    example_method.check_one_input(signature)
    if len(signature.outputs) not in (1, 2):
        raise InvalidInput(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if example_method.ALIAS not in signature.inputs:
        raise InvalidInput(
            "No classification inputs found in SignatureDef: "
            + example_method.format_signature(signature)
        )
    aliases = [alias for alias in (CLASSES, SCORES) if alias in signature.outputs]
    if not aliases:
        raise InvalidInput(
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or '
            f'"{SCORES}". Signature was: {example_method.format_signature(signature)}'
        )
    return aliases


def _read_answer(
    model: str, version: int, name: str, outputs: Mapping[str, Array], count: int
) -> Classification:
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    if classes is not None:
        _check_output(classes, CLASSES, "DT_STRING", np.dtype(object), count)
    if scores is not None:
        _check_output(scores, SCORES, "DT_FLOAT", np.dtype(np.float32), count)
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise InvalidInput(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. "
            f"{scores.shape[1]}"
        )
    return Classification(model, version, name, classes, scores)


def _check_output(
    array: Array, output: str, type_name: str, dtype: np.dtype[np.generic], count: int
) -> None:
    if array.ndim != 2:
        raise InvalidInput(
            "Expected Tensor shape: [batch_size num_classes] but got "
            + example_method.format_shape(array)
        )
    if array.dtype != dtype:
        raise InvalidInput(
            f"Expected {output} Tensor of {type_name}. Got: {example_method.format_type(array)}"
        )
    if len(array) != count:
        raise InvalidInput(f"Expected {output} output batch size of {count}. Got: {len(array)}")


METHOD = ExampleMethod("Classify", _select_outputs, _read_answer)
"""The method Classify, whose outputs are classes, scores or both: [examples, classes]."""
