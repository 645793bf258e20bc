"""Defines the interface of a server's API: the operations that the blocking and async client use.

An operation is a generator. It yields each request, receives the reply, and returns its result, so
that both clients share one implementation.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.client import arrays
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Steps, VersionStatus
from tpuserve.errors import (
    InvalidInput,
    NotFound,
    ServerUnreachable,
    TpuserveError,
    Unavailable,
)
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature


class Api(ABC):
    """Encodes the requests and decodes the replies of one API of a server, over HTTP or gRPC.

    An instance caches the signatures of each model.
    """

    is_http: bool

    def __init__(self) -> None:
        # Model → signature name → signature. The default signature also has the name "".
        self._signatures: dict[ModelReference, dict[str, Signature]] = {}

    @abstractmethod
    def predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[dict[str, Array]]:
        """Run a signature of a model on inputs.

        Args:
          inputs: alias → array or nested lists.
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
        """Encode the request that runs a signature on arrays.

        Args:
          inputs: alias → array; strings as object arrays of bytes.
          outputs: the aliases of the requested outputs; empty for all outputs.

        Raises:
          InvalidSetting: the model has a version label, which the API does not support.
        """

    @abstractmethod
    def signatures(self, model: ModelReference) -> Steps[Mapping[str, Signature]]:
        """Request the signatures of a model, and return signature name → signature."""

    @abstractmethod
    def versions(self, name: str) -> Steps[list[VersionStatus]]:
        """Request the state of each version of a model."""

    def is_ready(self, model: ModelReference) -> Steps[bool]:
        """Ask the server whether a model answers requests; False while the model is loading."""
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
        """Encode the request that asks whether a model is ready; the client does not retry it."""

    @abstractmethod
    def _says_ready(self, reply: Reply) -> bool:
        """Return whether the reply to `_ready_call` says that the model is ready."""

    def signature(self, model: ModelReference, name: str) -> Steps[Signature]:
        """Return a signature of a model; request the signature if it is not cached.

        Raises:
          InvalidInput: the model has no signature with this name. A Predict request with the name
            would raise the same class of error.
        """
        known = self._signatures.setdefault(model, {})
        if name not in known:
            known.update((yield from self._describe(model, name)))
        if name not in known:
            names = sorted(filter(None, known))
            raise InvalidInput(
                f"no signature {name or DEFAULT_SIGNATURE!r} in the metadata of model "
                f"{model.name!r}; found {', '.join(names) or 'none'}. Name one of those."
            )
        return known[name]

    def _describe(self, model: ModelReference, name: str) -> Steps[Mapping[str, Signature]]:
        known = yield from self.signatures(model)
        if DEFAULT_SIGNATURE not in known:
            return known
        return {**known, "": known[DEFAULT_SIGNATURE]}

    def _request_prediction(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[Reply]:
        """Convert the inputs to arrays and send a Predict request; return the encoded reply."""
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
        signature = None
        if arrays.needs_signature(inputs):
            signature = yield from self.signature(model, signature_name)
        return arrays.convert_inputs(inputs, signature)

    def _forget(self, model: ModelReference, error: Exception) -> None:
        """Drop the cached signatures of a model after the server refused a request to the model."""
        if isinstance(error, InvalidInput | NotFound):
            self._signatures.pop(model, None)
