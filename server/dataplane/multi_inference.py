"""MultiInference: several signatures of one model on the same examples.

The texts are TensorFlow Serving's.
Source: tensorflow_serving/servables/tensorflow/multi_inference.cc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from server.dataplane import classify, examples, regress
from server.dataplane.model_spec import Target
from server.dataplane.results import Classification, Regression
from server.servables.multi_signature import RunsTogether
from server.servables.servable import Array, Runner
from tpuserve.errors import InvalidInput, UnsupportedModel
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD, Signature

Task: TypeAlias = tuple[Target, str]
"""What a task is addressed to, and the method name that it asks for."""


@dataclass(frozen=True)
class Plan:
    """What to run for the tasks of a request.

    Attributes:
      methods: signature → the method name of its task, in the order of the request.
      outputs: signature → the outputs wanted of it.
    """

    methods: Mapping[str, str]
    outputs: Mapping[str, Sequence[str]]


def target_of(tasks: Sequence[Task]) -> Target:
    """What a whole request is addressed to: what its first task is.

    Raises:
      InvalidInput: there is no task, or it names no model.
    """
    if not tasks or not tasks[0][0].model:
        raise InvalidInput("ModelSpec has no name specified.")
    return tasks[0][0]


def plan(
    tasks: Sequence[Task], signatures: Mapping[str, Signature], check_method_names: bool
) -> Plan:
    """What to run for some tasks.

    Raises:
      InvalidInput: a task of another model, an unknown signature, one that is named twice, or
        one that does not fit its method.
      UnsupportedModel: a method that neither classifies nor regresses.
    """
    methods: dict[str, str] = {}
    outputs: dict[str, Sequence[str]] = {}
    fed: set[str] = set()
    for target, method in tasks:
        if not target.model:
            raise InvalidInput("Found ModelSpec with an empty model name.")
        if target.model != tasks[0][0].model:
            raise InvalidInput(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        name = target.effective_signature_name
        if name in methods:
            raise InvalidInput(f"Duplicate evaluation of signature: {name}")
        if name not in signatures:
            raise InvalidInput(f"Requested signature not found in model graph: {name}")
        if method == CLASSIFY_METHOD:
            outputs[name] = classify.outputs_of(signatures[name], check_method_names)
        elif method == REGRESS_METHOD:
            outputs[name] = regress.outputs_of(signatures[name], check_method_names)
        else:
            raise UnsupportedModel(f"Unsupported signature method_name: {method}")
        methods[name] = method
        fed.add(signatures[name].inputs[examples.ALIAS].name)
    if len(fed) > 1:
        raise InvalidInput("Input tensor must be the same for all Signatures.")
    return Plan(methods, outputs)


def run(
    runner: Runner, wanted: Plan, fed: Array, timeout_ms: float | None
) -> Mapping[str, Mapping[str, Array]]:
    """Signature → its outputs, computed in one run where that can be done."""
    inputs = {examples.ALIAS: fed}
    if isinstance(runner, RunsTogether):
        return runner.run_multi(wanted.outputs, inputs, timeout_ms=timeout_ms)
    return {
        name: runner.run(name, inputs, outputs, timeout_ms=timeout_ms)
        for name, outputs in wanted.outputs.items()
    }


def read(
    model: str,
    version: int,
    wanted: Plan,
    outputs: Mapping[str, Mapping[str, Array]],
    count: int,
) -> list[Classification | Regression]:
    """The answers to all tasks, in their order.

    Raises:
      InvalidInput: outputs of another type or shape than an answer has.
    """
    answers: list[Classification | Regression] = []
    for name, method in wanted.methods.items():
        if method == CLASSIFY_METHOD:
            classes, scores = classify.read(outputs[name], count)
            answers.append(Classification(model, version, name, classes, scores))
        else:
            values = regress.read(outputs[name], count)
            answers.append(Regression(model, version, name, values))
    return answers
