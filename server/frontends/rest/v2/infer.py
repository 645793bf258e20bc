"""Answers infer requests: from a body of JSON and binary data to a response of the same kind."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.codec.array_to_json import JsonText
from server.codec.open_inference.infer_request import InferRequest
from server.codec.open_inference.infer_response import encode_infer_response
from server.dataplane import DataPlaneInterface, ModelSpec, Prediction
from server.frontends import output_memory
from server.frontends.rest.transport.headers import Headers, get_header
from server.metrics.timeline import Timeline
from server.parsing.request_parser import RequestParser
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

JSON_SIZE_HEADER = b"inference-header-content-length"
"""The header with the size of the JSON in bytes, where binary data follow the JSON."""


class InferResult(NamedTuple):
    """The encoded response to an infer request.

    Attributes:
      body: The body.
      json_bytes: The size of the JSON with which the body begins; None if the whole body is JSON.
      version: The version that answered.
      memory: The memory of a large body; None for a small one.
    """

    body: JsonText
    json_bytes: int | None
    version: int
    memory: MemoryReservation | None


def split_body(headers: Headers, body: bytes) -> tuple[bytes, memoryview]:
    """Split the body of an infer request into its JSON and its binary data.

    Raises:
      InvalidInput: The header with the size of the JSON is no number, or larger than the body.
    """
    value = get_header(headers, JSON_SIZE_HEADER)
    if value is None:
        return body, memoryview(b"")
    # The limit of digits keeps `int` from converting a text of any length.
    num_bytes = int(value) if value.isdigit() and len(value) <= 19 else -1
    if not 0 <= num_bytes <= len(body):
        shown = value[:32].decode("latin-1")
        raise InvalidInput(
            f"Inference-Header-Content-Length is {shown!r}, and the body has {len(body)} bytes. "
            f"Send the size of the JSON with which the body begins, in bytes."
        )
    return body[:num_bytes], memoryview(body)[num_bytes:]


def parse_body(
    parser: RequestParser,
    headers: Headers,
    body: bytes,
    timeout_ms: float | None,
    cancellation: Cancellation | None,
    reservation: MemoryReservation | None,
) -> tuple[InferRequest, memoryview, float | None]:
    """Parse a request; see `Router.handle` for the arguments.

    Returns:
      The request, its binary data, and the milliseconds left for the answer.
    """
    started = time.monotonic()
    text, binary = split_body(headers, body)
    request = parser.parse_infer_request(
        text, reservation, timeout_ms=timeout_ms, cancellation=cancellation
    )
    if timeout_ms is not None:
        timeout_ms = max(1, timeout_ms - (time.monotonic() - started) * 1000)
    if request.timeout_us is not None:
        timeout_ms = min(timeout_ms or float("inf"), max(1, request.timeout_us / 1000))
    return request, binary, timeout_ms


def run_model(
    dataplane: DataPlaneInterface,
    spec: ModelSpec,
    request: InferRequest,
    binary: memoryview,
    *,
    timeout_ms: float | None,
    cancellation: Cancellation | None,
    timeline: Timeline | None,
    reservation: MemoryReservation | None,
    budget: MemoryBudget,
) -> InferResult | Pending[InferResult]:
    """Run a model on a request; return a Pending if the request waits for a batch.

    Args:
      dataplane: Finds and runs the model.
      spec: The model, version and signature.
      request: The request without its binary data.
      binary: The binary data.
      timeout_ms: The milliseconds in which the model must answer. None means no limit.
      cancellation: Tells whether the client still waits for the answer. None if unknown.
      timeline: Records the times of the request. None means that nothing is recorded.
      reservation: The memory of the request, which grows by the size of the arrays. None for a
        small request.
      budget: Bounds the memory of the outputs while they are encoded, and of their body until it
        is sent.
    """

    def read_inputs(signature: Signature) -> Mapping[str, Array]:
        reserve = reservation.grow if reservation is not None else lambda num_bytes: None
        return request.read_inputs(signature, binary, reserve)

    prediction = dataplane.start_predict(
        spec,
        read_inputs,
        list(request.outputs),
        timeout_ms=timeout_ms,
        cancellation=cancellation,
        timeline=timeline,
    )
    return pending.transform(prediction, lambda outputs: _encode(outputs, request, budget))


def _encode(prediction: Prediction, request: InferRequest, budget: MemoryBudget) -> InferResult:
    outputs = prediction.outputs
    if request.outputs:
        outputs = {name: outputs[name] for name in request.outputs}
    with budget.reserve() as memory:
        output_memory.reserve_for_json(
            {name: array for name, array in outputs.items() if not request.is_binary(name)},
            memory.grow,
        )
        output_memory.reserve_for_message(
            {name: array for name, array in outputs.items() if request.is_binary(name)},
            memory.grow,
        )
        body, json_bytes = encode_infer_response(
            prediction.model, prediction.version, request.request_id, outputs, request.is_binary
        )
    reservation = output_memory.reserve_for_body(body, budget)
    return InferResult(body, json_bytes, prediction.version, reservation)
