"""MultiInference: runs several signatures of one model on the same examples.

The error texts are those of TensorFlow Serving. Source:
tensorflow_serving/servables/tensorflow/multi_inference.cc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from server.dataplane import classify, regress
from server.dataplane.example_method import ExampleMethod
from server.dataplane.model_spec import ModelSpec
from server.dataplane.results import Classification, Regression
from server.servables.servable import Array
from tpuserve.errors import InvalidInput, UnsupportedModel
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD, Signature

Task: TypeAlias = tuple[ModelSpec, str]
"""A task of a request: the model specification and the requested method name."""

AnyExampleMethod: TypeAlias = ExampleMethod[Classification] | ExampleMethod[Regression]

_METHODS: dict[str, AnyExampleMethod] = {
    CLASSIFY_METHOD: classify.METHOD,
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
