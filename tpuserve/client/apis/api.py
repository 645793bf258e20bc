"""The operations that each API of a server offers to the clients."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.client import arrays
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, Reply, Steps
from tpuserve.client.model_reference import ModelReference, VersionStatus
from tpuserve.errors import (
    InvalidInput,
    NotFound,
    ServerUnreachable,
    TpuserveError,
    Unavailable,
)
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature


class Api(ABC):
    """An API of a server, over HTTP or gRPC: encodes requests and decodes replies.

    The signatures of a model are requested once, and requested again after the server refuses a
    request to the model.
    """

    is_http: bool

    def __init__(self) -> None:
        """Create an API that has not asked the server for signatures yet."""
        self._signatures: dict[ModelReference, Mapping[str, Signature]] = {}

    @abstractmethod
    def predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[dict[str, Array]]:
        """Run a signature of a model.

        Args:
          model: the model.
          inputs: alias → array or nested lists.
          signature_name: the name of the signature; "" for "serving_default".
          outputs: the aliases of the requested outputs; empty for all outputs.

        Returns:
          Output alias → array; strings as object arrays of bytes.
        """

    @abstractmethod
    def encode_predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Array],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Any:
        """Encode the call that runs a signature on arrays.

        Args:
          model: the model.
          inputs: alias → array; strings as object arrays of bytes.
          signature_name: the name of the signature; "" for "serving_default".
          outputs: the aliases of the requested outputs; empty for all outputs.

        Returns:
          The `Call`.

        Raises:
          InvalidSetting: the API cannot name the version of the model by a label.
          UnsupportedType: the API has no form for the dtype of an input.
        """

    @abstractmethod
    def signatures(self, model: ModelReference) -> Steps[Mapping[str, Signature]]:
        """Ask for the signatures of a model: name → signature."""

    @abstractmethod
    def versions(self, name: str) -> Steps[list[VersionStatus]]:
        """Ask for the states of the versions of a model."""

    def is_ready(self, model: ModelReference) -> Steps[bool]:
        """Ask whether a version of a model answers requests; False while the server starts."""
        call = self._ready_call(model)
        try:
            reply = yield call
        except ServerUnreachable:
            raise
        except (NotFound, Unavailable, InvalidInput):
            return False
        return self._says_ready(reply)

    @abstractmethod
    def _ready_call(self, model: ModelReference) -> Call:
        """Encode the question whether a model is ready, which is not repeated."""

    @abstractmethod
    def _says_ready(self, reply: Reply) -> bool:
        """Return whether the reply to `_ready_call` says that the model is ready."""

    def _find_signature(self, model: ModelReference, name: str) -> Steps[Signature]:
        """Return a signature, from the server or from an earlier reply.

        Raises:
          InvalidInput: the metadata of the model have no signature of the name. The server would
            answer with this class too.
        """
        known = self._signatures.get(model)
        if known is None:
            known = self._signatures[model] = yield from self.signatures(model)
        signature = known.get(name or DEFAULT_SIGNATURE)
        if signature is None:
            raise InvalidInput(
                f"no signature {name or DEFAULT_SIGNATURE!r} in the metadata of model "
                f"{model.name!r}; they have {', '.join(sorted(known)) or 'none'}. Name one of "
                f"those; the API 'v2' describes only {DEFAULT_SIGNATURE}, and needs NumPy arrays "
                f"for the others."
            )
        return signature

    def _request_prediction(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[Reply]:
        """Convert the inputs, and request a prediction; the arguments are those of `predict`."""
        try:
            converted = yield from self._convert_inputs(model, inputs, signature_name)
            reply = yield self.encode_predict(model, converted, signature_name, outputs)
        except TpuserveError as error:
            self._forget(model, error)
            raise
        return reply

    def _convert_inputs(
        self, model: ModelReference, inputs: Mapping[str, Any], signature_name: str
    ) -> Steps[dict[str, Array]]:
        """Convert inputs to arrays; the signature is only requested for lists and numbers."""
        signature = None
        if arrays.needs_signature(inputs):
            signature = yield from self._find_signature(model, signature_name)
        return arrays.convert_inputs(inputs, signature)

    def _forget(self, model: ModelReference, error: Exception) -> None:
        """Forget the signatures of a model that refuses a request: it may have been replaced."""
        if isinstance(error, InvalidInput | NotFound):
            self._signatures.pop(model, None)
