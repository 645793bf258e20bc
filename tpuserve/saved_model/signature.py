"""What a model takes and gives, as frozen data that needs no TensorFlow."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuserve.errors import InvalidInput, InvalidInputNames, SignatureNotFound

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor of a signature.

    Attributes:
      name: the tensor in the graph, "image:0".
      dtype: TensorFlow's name of the element type: "float32", "string", "int64".
      shape: None per unknown dimension; None as a whole where the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} <unknown rank>"
        return f"{self.dtype} [{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Signature:
    """One entry point of a model.

    Attributes:
      inputs, outputs: alias → tensor; the alias is the name clients use.
      method_name: the Serving API it was made for, "tensorflow/serving/predict".
      defaults: alias → array, for inputs that a request may leave out.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = PREDICT_METHOD
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def complete(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a request, with the defaults for those that it leaves out.

        Raises:
          InvalidInputNames: as `check_inputs`.
        """
        self.check_inputs(sent.keys())
        if len(sent) == len(self.inputs):
            return sent
        return {**{name: self.defaults[name] for name in self.inputs if name not in sent}, **sent}

    def check_inputs(self, sent: Collection[str]) -> None:
        """Refuses inputs that are not just those of the signature, but for its defaults.

        The texts are TensorFlow Serving's.

        Raises:
          InvalidInputNames: too many, too few, or others.
        """
        # Most requests are right, and views of keys are compared without a copy.
        if sent == self.inputs.keys():
            return
        names, required = set(sent), set(self.inputs)
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
                f"{_format_names(required)}, or default input alias set: "
                f"{_format_names(self.defaults)}"
            )
        if names - required:
            raise InvalidInputNames(
                f"Inputs contains invalid name. Used request inputs: "
                f"{_format_names(names & required)}, request input: {_format_names(names)}"
            )

    def check_outputs(self, wanted: Sequence[str]) -> None:
        """Refuses a choice of outputs that is not one of the signature's.

        Raises:
          InvalidInput: an unknown output, or one that is named twice.
        """
        for position, name in enumerate(wanted):
            if name not in self.outputs:
                raise InvalidInput(
                    f"output tensor alias not found in signature: {name} Outputs expected to be "
                    f"in the set {_format_names(self.outputs)}."
                )
            if name in wanted[:position]:
                raise InvalidInput(f"duplicate output tensor alias: {name}")


def find_signature(signatures: Mapping[str, Signature], name: str) -> Signature:
    """The signature of a name.

    Raises:
      SignatureNotFound: there is none; the text is TensorFlow Serving's.
    """
    if name not in signatures:
        raise SignatureNotFound(f'Serving signature key "{name}" not found.')
    return signatures[name]


def _format_names(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
