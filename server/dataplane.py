"""What a client can ask, without a word of HTTP or gRPC."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from server.manager import Manager
from server.servable import Array, VersionStatus
from tpuserve import signature as signatures
from tpuserve.errors import ModelExecutionError
from tpuserve.signature import DEFAULT_SIGNATURE, Signature

logger = logging.getLogger(__name__)

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
            signature = signatures.find(servable.model.signatures, name)
            inputs = read_inputs(signature)
            signature.check_inputs(inputs.keys())
            signature.check_outputs(output_filter)
            try:
                outputs = servable.model.run(name, inputs, list(output_filter) or None)
            except ModelExecutionError as error:
                # No fault of the client's, so it is for who runs the server to know.
                logger.error("%s: signature %s has failed: %s", servable, name, error)
                raise
            return Prediction(target.model, servable.version, name, outputs)

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """The status of a model's versions, or of one; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or not that one.
        """
        return self._manager.status(model, version)
