"""What a client can ask, without a word of HTTP or gRPC."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from server.manager import Manager
from server.servable import Array, VersionStatus
from tpuserve.errors import InvalidInput, InvalidInputNames, SignatureNotFound
from tpuserve.signature import DEFAULT_SIGNATURE, Signature

ReadInputs: TypeAlias = Callable[[Signature], Mapping[str, Array]]


@dataclass(frozen=True)
class Target:
    """What a request is addressed to.

    Attributes:
      version: None for the latest that is available.
      signature_name: empty for "serving_default".
    """

    model: str
    version: int | None = None
    signature_name: str = ""

    @property
    def effective_signature_name(self) -> str:
        """The signature that answers, never empty."""
        return self.signature_name or DEFAULT_SIGNATURE


@dataclass(frozen=True)
class Prediction:
    """An answer, and who gave it.

    Attributes:
      outputs: alias → array; strings are object arrays of bytes.
    """

    model: str
    version: int
    signature_name: str
    outputs: Mapping[str, Array]


class DataPlane:
    """Answers requests; REST and gRPC are two faces of it."""

    def __init__(self, manager: Manager) -> None:
        """Takes the manager of the models to answer with."""
        self._manager = manager

    def predict(
        self, target: Target, read_inputs: ReadInputs, output_filter: Sequence[str] = ()
    ) -> Prediction:
        """Runs a model on inputs, in the calling thread.

        Args:
          read_inputs: signature → the arrays of the request, by alias. Called once the signature
            is known, since only that tells how to read a request.
          output_filter: the outputs wanted; empty for all of them.

        Raises:
          ModelNotFound, SignatureNotFound: nothing there to answer.
          InvalidInputNames, InvalidTensor: inputs that the signature or the model refuses.
          ModelExecutionError: the model failed.
        """
        with self._manager.use(target.model, target.version) as servable:
            name = target.effective_signature_name
            signature = _find(servable.model.signatures, name)
            inputs = read_inputs(signature)
            check_inputs(inputs.keys(), signature)
            check_outputs(output_filter, signature)
            outputs = servable.model.run(name, inputs, list(output_filter) or None)
            return Prediction(target.model, servable.version, name, outputs)

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """The status of a model's versions, or of one; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or not that one.
        """
        return self._manager.status(model, version)


def check_inputs(sent: Collection[str], signature: Signature) -> None:
    """Refuses inputs that are not those of the signature.

    Raises:
      InvalidInputNames: too many, too few, or others.
    """
    names, required = set(sent), set(signature.inputs)
    if len(names) != len(required):
        raise InvalidInputNames(
            f"input size does not match signature: {len(names)}!={len(required)} "
            f"len({_show(names)}) != len({_show(required)}). Sent extra: {_show(names - required)}."
            f" Missing but required: {_show(required - names)}."
        )
    for name in sorted(required - names):
        raise InvalidInputNames(
            f"Signature input alias: {name}(feed name: {signature.inputs[name].name}) not found in "
            f"request and no default value provided. Inputs expected to be in the request "
            f"{_show(required)}, or default input alias set: {{}}"
        )


def check_outputs(wanted: Sequence[str], signature: Signature) -> None:
    """Refuses a choice of outputs that is not one of the signature's.

    Raises:
      InvalidInput: an unknown output, or one that is named twice.
    """
    for position, name in enumerate(wanted):
        if name not in signature.outputs:
            raise InvalidInput(
                f"output tensor alias not found in signature: {name} Outputs expected to be in "
                f"the set {_show(signature.outputs)}."
            )
        if name in wanted[:position]:
            raise InvalidInput(f"duplicate output tensor alias: {name}")


def _find(signatures: Mapping[str, Signature], name: str) -> Signature:
    if name not in signatures:
        raise SignatureNotFound(f'Serving signature key "{name}" not found.')
    return signatures[name]


def _show(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
