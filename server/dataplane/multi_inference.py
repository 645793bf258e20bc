"""MultiInference: runs several signatures of one model on the same examples.

The error texts are those of TensorFlow Serving. Source:
tensorflow_serving/servables/tensorflow/multi_inference.cc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from server.dataplane import example_method, method_names, regress
from server.dataplane.example_method import ExampleMethod
from server.dataplane.model_spec import ModelSpec
from server.dataplane.results import Classification, Regression
from server.servables.servable import Array
from tpuserve.errors import InvalidInput, UnsupportedModel
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD, Signature

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


Task: TypeAlias = tuple[ModelSpec, str]
"""A task of a request: the model specification and the requested method name."""

AnyExampleMethod: TypeAlias = ExampleMethod[Classification] | ExampleMethod[Regression]

_METHODS: dict[str, AnyExampleMethod] = {
    CLASSIFY_METHOD: METHOD,
    REGRESS_METHOD: regress.METHOD,
}


@dataclass(frozen=True)
class MultiInferencePlan:
    """The signatures and outputs to compute for the tasks of a MultiInference request.

    Attributes:
      methods: signature name → Classify or Regress, in the order of the request's tasks.
    """

    methods: Mapping[str, AnyExampleMethod]
    outputs: Mapping[str, Sequence[str]]


def model_spec_of_request(tasks: Sequence[Task]) -> ModelSpec:
    """Return the model specification of the first task, which applies to the whole request.

    `tasks` are pairs (model specification, method name).
    """
    if not tasks or not tasks[0][0].model:
        raise InvalidInput("ModelSpec has no name specified.")
    return tasks[0][0]


def make_plan(
    tasks: Sequence[Task], signatures: Mapping[str, Signature], check_method_names: bool
) -> MultiInferencePlan:
    """Check the tasks of a request, and return the signatures and outputs that answer them.

    Args:
      check_method_names: whether the method_name of a signature must match the task's method.

    Raises:
      InvalidInput: the tasks name different models, two tasks name the same signature, or a task
        names a signature that is unknown or that the task's method cannot run.
      UnsupportedModel: a task's method is neither Classify nor Regress.
    """
    methods: dict[str, AnyExampleMethod] = {}
    outputs: dict[str, Sequence[str]] = {}
    for spec, method in tasks:
        if not spec.model:
            raise InvalidInput("Found ModelSpec with an empty model name.")
        if spec.model != tasks[0][0].model:
            raise InvalidInput(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        name = spec.effective_signature_name
        if name in methods:
            raise InvalidInput(f"Duplicate evaluation of signature: {name}")
        if name not in signatures:
            raise InvalidInput(f"Requested signature not found in model graph: {name}")
        if method not in _METHODS:
            raise UnsupportedModel(f"Unsupported signature method_name: {method}")
        methods[name] = _METHODS[method]
        outputs[name] = methods[name].select_outputs(signatures[name], check_method_names)
    return MultiInferencePlan(methods, outputs)


def read_answers(
    model: str,
    version: int,
    plan: MultiInferencePlan,
    outputs: Mapping[str, Mapping[str, Array]],
    count: int,
) -> list[Classification | Regression]:
    """Return the answers to all tasks in the order of the request.

    Args:
      outputs: signature name → alias → array.
    """
    return [
        method.read_answer(model, version, name, outputs[name], count)
        for name, method in plan.methods.items()
    ]
