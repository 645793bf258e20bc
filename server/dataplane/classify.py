"""Classify: what its signatures are like, and how their outputs are read.

The texts are TensorFlow Serving's.
Source: tensorflow_serving/servables/tensorflow/classifier.cc.
"""

from collections.abc import Mapping

import numpy as np

from server.dataplane import examples, method_names
from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

CLASSES = "classes"
SCORES = "scores"


def outputs_of(signature: Signature, check_method_name: bool) -> list[str]:
    """The outputs to ask of a signature that classifies: classes, scores or both.

    Raises:
      InvalidInput: it is no such signature.
    """
    if check_method_name:
        method_names.check_classify(signature)
    examples.check_one_input(signature)
    if len(signature.outputs) not in (1, 2):
        raise InvalidInput(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if examples.ALIAS not in signature.inputs:
        raise InvalidInput(
            f"No classification inputs found in SignatureDef: {examples.show(signature)}"
        )
    wanted = [alias for alias in (CLASSES, SCORES) if alias in signature.outputs]
    if not wanted:
        raise InvalidInput(
            f"No classification outputs found in SignatureDef: {examples.show(signature)}"
        )
    return wanted


def read(outputs: Mapping[str, Array], count: int) -> tuple[Array | None, Array | None]:
    """The classes and the scores among the outputs for so many examples.

    Raises:
      InvalidInput: they are of another type or shape than an answer has.
    """
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    if classes is not None:
        _check(classes, CLASSES, "DT_STRING", np.dtype(object), count)
    if scores is not None:
        _check(scores, SCORES, "DT_FLOAT", np.dtype(np.float32), count)
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise InvalidInput(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. "
            f"{scores.shape[1]}"
        )
    return classes, scores


def _check(array: Array, what: str, name: str, dtype: np.dtype[np.generic], count: int) -> None:
    if array.ndim != 2:
        raise InvalidInput(
            f"Expected Tensor shape: [batch_size num_classes] but got {examples.show_shape(array)}"
        )
    if array.dtype != dtype:
        raise InvalidInput(f"Expected {what} Tensor of {name}. Got: {examples.show_type(array)}")
    if len(array) != count:
        raise InvalidInput(f"Expected {what} output batch size of {count}. Got: {len(array)}")
