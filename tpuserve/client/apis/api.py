"""Defines the interface of a server's API: the operations that the blocking and async client use.

An operation is a generator. It yields each request, receives the reply, and returns its result, so
that both clients share one implementation.
"""

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
    """Encodes the requests and decodes the replies of one API of a server, over HTTP or gRPC.

    An instance caches the signatures of each model. When the server refuses a request to a model,
    the cached signatures of this model are dropped, and are requested again when they are needed.
    """

    is_http: bool

    def __init__(self) -> None:
        """Create an instance without signatures; they are requested when they are needed."""
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
          model: the model, and the version to call.
          inputs: alias → array or nested lists.
          signature_name: the name of the signature; "" for the default signature.
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
          model: the model, and the version to call.
          inputs: alias → array; strings as object arrays of bytes.
          signature_name: the name of the signature; "" for the default signature.
          outputs: the aliases of the requested outputs; empty for all outputs.

        Returns:
          The request, a `tpuserve.client.call.Call`.

        Raises:
          InvalidSetting: the model has a version label, which the API does not support.
          CodedError: the API cannot encode the dtype of an input.
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

        Args:
          model: the model, and the version to call.
          name: the name of the signature; "" for the default signature.

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
        """Request a signature of a model; the reply can also describe other signatures.

        Args:
          model: the model, and the version to call.
          name: the name of the signature; "" for the default signature.

        Returns:
          Signature name → signature, for all signatures in the reply. The default signature also
          has the name "". If the model does not have the requested signature, the result does not
          contain it, but can contain other signatures.
        """
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
        """Convert the inputs to arrays and send a Predict request; return the encoded reply.

        The arguments are those of `predict`.
        """
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
        """Convert inputs to arrays.

        Lists and numbers get the dtypes of the signature. If all inputs are arrays already, the
        signature is not requested.
        """
        signature = None
        if arrays.needs_signature(inputs):
            signature = yield from self.signature(model, signature_name)
        return arrays.convert_inputs(inputs, signature)

    def _forget(self, model: ModelReference, error: Exception) -> None:
        """Drop the cached signatures of a model after the server refused a request to the model.

        Perhaps the server now has a version of the model with other signatures.
        """
        if isinstance(error, InvalidInput | NotFound):
            self._signatures.pop(model, None)
