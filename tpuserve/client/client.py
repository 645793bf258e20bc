"""Defines the blocking client, which calls models on a server."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve import validation
from tpuserve.client import retries
from tpuserve.client.address import ApiName, create_api, parse_url
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Result, Steps, VersionStatus
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import DEFAULT_MAX_REPLY_BYTES, ConnectionSettings
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature

DEFAULT_TIMEOUT_SECONDS = 60.0
DEFAULT_ATTEMPTS = 3


class Client:
    """A client whose methods block until the server answers. Several threads may share a client.

    A call is retried if the server cannot be reached, is overloaded, or is starting or stopping.
    The time limit of a call covers all of its attempts together.

    Args:
      url: http://HOST:PORT or https://HOST:PORT for REST, grpc://HOST:PORT or
        grpcs://HOST:PORT for gRPC.
      api: "v1" for TensorFlow Serving's API, "v2" for the Open Inference Protocol.
      timeout_s: the default time limit of a call, with all of its attempts, in seconds.
      attempts: the largest number of times that a call is sent.
      api_key: the key that is sent as a bearer token; "" for none.
      ca_file: a PEM file with the certificates that the server's certificate is checked with;
        None for the certificates of the system.
      max_reply_bytes: the largest size of a reply in bytes, after decompression.
    """

    def __init__(
        self,
        url: str,
        *,
        api: ApiName = "v1",
        timeout_s: float = DEFAULT_TIMEOUT_SECONDS,
        attempts: int = DEFAULT_ATTEMPTS,
        api_key: str = "",
        ca_file: str | None = None,
        max_reply_bytes: int = DEFAULT_MAX_REPLY_BYTES,
    ) -> None:
        check_settings(timeout_s, attempts)
        address = parse_url(url)
        connection = ConnectionSettings(address, api_key, ca_file, max_reply_bytes)
        self._api = create_api(address, api)
        self._timeout_s = timeout_s
        self._attempts = attempts
        if address.is_http:
            from tpuserve.client.http_transport import HttpTransport

            self._transport: Any = HttpTransport(connection)
        else:
            from tpuserve.client.grpc_transport import GrpcTransport

            self._transport = GrpcTransport(connection)

    def predict(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        signature: str = "",
        version: int | None = None,
        label: str = "",
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Run a signature of a model.

        Args:
          inputs: alias → array, or nested lists, which get the dtype of the signature.
          signature: the name of the signature; "" for the default signature, which is
            "serving_default".
          outputs: the aliases of the requested outputs; empty for all outputs.
          timeout_s: the time limit in seconds; None for the timeout_s of the client.

        Returns:
          Output alias → array; strings as object arrays of bytes.
        """
        reference = ModelReference(model, version, label)
        return self._run(self._api.predict(reference, inputs, signature, outputs), timeout_s)

    def signatures(
        self,
        model: str,
        *,
        version: int | None = None,
        label: str = "",
        timeout_s: float | None = None,
    ) -> Mapping[str, Signature]:
        """Return the signatures of a model: name → signature.

        Over the Open Inference Protocol, the result has only the default signature, which the
        docstring of `predict` defines.
        """
        return self._run(self._api.signatures(ModelReference(model, version, label)), timeout_s)

    def signature(
        self,
        model: str,
        name: str = "",
        *,
        version: int | None = None,
        label: str = "",
        timeout_s: float | None = None,
    ) -> Signature:
        """Return a signature of a model; only the first call requests it from the server.

        Args:
          name: the name of the signature; "" for the default signature (see `predict`). The Open
            Inference Protocol over gRPC describes only the default signature.
          timeout_s: the time limit in seconds; None for the timeout_s of the client.
        """
        reference = ModelReference(model, version, label)
        return self._run(self._api.signature(reference, name), timeout_s)

    def versions(self, model: str, *, timeout_s: float | None = None) -> list[VersionStatus]:
        """Return the state of each version of a model; the errors are those of `predict`."""
        return self._run(self._api.versions(model), timeout_s)

    def is_ready(
        self,
        model: str,
        *,
        version: int | None = None,
        label: str = "",
        timeout_s: float | None = None,
    ) -> bool:
        """Return whether a model answers requests; the arguments are those of `predict`.

        If the server cannot be reached, the method raises ServerUnreachable.
        """
        return self._run(self._api.is_ready(ModelReference(model, version, label)), timeout_s)

    def close(self) -> None:
        """Close the connections to the server."""
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[Result], timeout_s: float | None) -> Result:
        deadline = Deadline(self._timeout_s if timeout_s is None else timeout_s)
        try:
            call = next(steps)
            while True:
                try:
                    reply = self._send(call, deadline)
                except TpuserveError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(reply)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _send(self, call: Call, deadline: Deadline) -> Reply:
        # Send the first attempt without tenacity, the library for retries. Creating its objects
        # would take as much time as a small call.
        reply: Reply
        try:
            reply = self._transport.send(call, deadline)
        except TpuserveError as error:
            if not (call.is_retried and self._attempts > 1 and retries.is_temporary(error)):
                raise
            reply = retries.repeat(self._transport.send, call, deadline, self._attempts, error)
        return reply


def check_settings(timeout_s: float, attempts: int) -> None:
    """Check the settings that the blocking and the asyncio client share.

    Args:
      timeout_s: the default time limit of a call, in seconds.
      attempts: the largest number of times that a call is sent.

    Raises:
      InvalidSetting: the time limit is not positive, or there is less than one attempt.
    """
    Deadline(timeout_s)
    validation.check_integer("attempts", attempts, least=1)
