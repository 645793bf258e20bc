"""Defines the signatures of a model and their tensors, without importing TensorFlow."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuserve.errors import (
    InvalidInput,
    InvalidInputNames,
    SignatureNotFound,
    UnsupportedModel,
)

if TYPE_CHECKING:
    # The client imports this module, and no protobuf before it needs it.
    from tpuserve.graph.state_writes import Write

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
DEFAULT_SIGNATURE = "serving_default"
INIT_SIGNATURE = "__saved_model_init_op"
"""The signature with which TensorFlow 2 names the initialisation op. Clients cannot call it."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output tensor of a signature.

    Attributes:
      name: the name of the tensor in the graph, for example "image:0"; empty for a sparse or
        composite tensor, which consists of several tensors.
      dtype: TensorFlow's name of the dtype, for example "float32" or "string".
      shape: the size of each dimension, None for an unknown size; None if the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def is_dense(self) -> bool:
        """Whether requests and responses can contain the tensor: it is a single tensor."""
        return bool(self.name)

    def has_shape(self, shape: Sequence[int]) -> bool:
        """Return whether the shape of an array is one that the tensor is known to have."""
        return (
            self.shape is not None
            and len(self.shape) == len(shape)
            and all(known in (None, size) for known, size in zip(self.shape, shape, strict=True))
        )

    def __str__(self) -> str:
        dtype = self.dtype if self.is_dense else f"sparse or composite {self.dtype}"
        if self.shape is None:
            return f"{dtype} <unknown rank>"
        return f"{dtype} [{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Signature:
    """A function of a model that clients can call.

    Attributes:
      inputs: the name by which clients refer to an input (its alias) → tensor.
      outputs: the name by which clients refer to an output (its alias) → tensor.
      defaults: input alias → array, for inputs that a request may omit.
      write: how a run changes a state that outlives it, such as a variable; None if a run only
        reads, or if the graph is not known. Nothing but a user's request may run such a signature.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = PREDICT_METHOD
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    write: "Write | None" = field(default=None, compare=False)

    @property
    def is_dense(self) -> bool:
        """Whether requests and responses can contain all tensors of the signature."""
        return all(spec.is_dense for spec in (*self.inputs.values(), *self.outputs.values()))

    def describe_other_shapes(self, inputs: Mapping[str, Any]) -> str:
        """Name the inputs with other shapes than the signature's, for an error; "" if none has."""
        return "; ".join(
            f"input {alias!r} has the shape {list(array.shape)}, and the signature expects "
            f"{self.inputs[alias]}"
            for alias, array in inputs.items()
            if not self.inputs[alias].has_shape(array.shape)
        )

    def complete(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the inputs of a request, with default values for the omitted inputs."""
        self.check_inputs(inputs.keys())
        if len(inputs) == len(self.inputs):
            return inputs
        omitted = (name for name in self.inputs if name not in inputs)
        return {**{name: self.defaults[name] for name in omitted}, **inputs}

    def check_inputs(self, aliases: Collection[str]) -> None:
        """Check that a request has the inputs of the signature, except inputs with defaults.

        The error texts are those of TensorFlow Serving.
        """
        # Return early if the request has exactly the inputs of the signature, as most requests do.
        # The comparison is fast, because it copies nothing.
        if aliases == self.inputs.keys():
            return
        names, required = set(aliases), set(self.inputs)
        if len(names) > len(required) or (len(names) < len(required) and not self.defaults):
            raise InvalidInputNames(
                f"input size does not match signature: {len(names)}!={len(required)} "
                f"len({_format_names(names)}) != len({_format_names(required)}). "
                f"Sent extra: {_format_names(names - required)}. "
                f"Missing but required: {_format_names(required - names)}."
            )
        for name in sorted(required - names - self.defaults.keys()):
            raise InvalidInputNames(
                f"Signature input alias: {name}(feed name: {self.inputs[name].name}) not found "
                f"in request and no default value provided. Inputs expected to be in the request "
                f"{_format_names(names)}, or default input alias set: "
                f"{_join_names(self.defaults)}"
            )
        if names - required:
            raise InvalidInputNames(
                f"Inputs contains invalid name. Used request inputs: "
                f"{_join_names(names & required)}, request input: {_join_names(names)}"
            )

    def check_outputs(self, aliases: Sequence[str]) -> None:
        """Check that requested outputs are outputs of the signature."""
        for position, name in enumerate(aliases):
            if name not in self.outputs:
                raise InvalidInput(
                    f"output tensor alias not found in signature: {name} Outputs expected to be "
                    f"in the set {_format_names(self.outputs)}."
                )
            if name in aliases[:position]:
                raise InvalidInput(f"duplicate output tensor alias: {name}")

    def check_single_tensors(self, outputs: Sequence[str]) -> None:
        """Check that each input and each requested output is a dense tensor.

        Requests and responses cannot contain sparse and composite tensors.
        """
        for kind, specs, aliases in (
            ("input", self.inputs, self.inputs),
            ("output", self.outputs, outputs),
        ):
            for alias in aliases:
                if not specs[alias].is_dense:
                    do = "" if kind == "input" else " request other outputs, or"
                    raise UnsupportedModel(
                        f"{kind} {alias!r} is a sparse or composite tensor, which requests cannot "
                        f"hold:{do} export a signature with its indices, values and shape."
                    )


def find_signature(signatures: Mapping[str, Signature], name: str) -> Signature:
    """Look up a signature by its name.

    Raises:
      SignatureNotFound: no signature has this name. The error has TensorFlow Serving's text.
    """
    if name not in signatures:
        raise SignatureNotFound(f'Serving signature key "{name}" not found.')
    return signatures[name]


def _format_names(names: Collection[str]) -> str:
    return "{" + _join_names(names) + "}"


def _join_names(names: Collection[str]) -> str:
    return ",".join(sorted(names))
