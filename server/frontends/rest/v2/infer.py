"""Runs infer requests, whose bodies consist of JSON and optional binary data."""

from collections.abc import Mapping
from typing import NamedTuple

from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.codec.array_to_json import JsonText
from server.codec.open_inference.infer_request import InferRequest
from server.codec.open_inference.infer_response import encode_infer_response
from server.codec.open_inference.time_limit import limit_time
from server.dataplane import DataPlane, ModelSpec, Prediction
from server.frontends import output_memory
from server.frontends.rest.transport.headers import Headers, get_header
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

JSON_SIZE_HEADER = b"inference-header-content-length"
"""The header that has the size of the JSON in bytes if binary data follow the JSON."""


class InferResult(NamedTuple):
    """The encoded result of an infer request.

    Attributes:
      json_bytes: The size in bytes of the JSON with which the body begins. None if the whole body
        is JSON.
      memory: The reservation for a large body in the memory budget. None for a small body, which
        reserves nothing.
    """

    body: JsonText
    json_bytes: int | None
    version: int
    signature_name: str
    memory: MemoryReservation | None


def split_body(headers: Headers, body: bytes) -> tuple[bytes, memoryview]:
    """Split the body of an infer request into its JSON and its binary data.

    The header Inference-Header-Content-Length has the size of the JSON. Without this header, the
    whole body is JSON.
    """
    value = get_header(headers, JSON_SIZE_HEADER)
    if value is None:
        return body, memoryview(b"")
    # Limit the number of digits, because `int` would take long to convert a long text.
    num_bytes = int(value) if value.isdigit() and len(value) <= 19 else -1
    if not 0 <= num_bytes <= len(body):
        shown = value[:32].decode("latin-1")
        raise InvalidInput(
            f"Inference-Header-Content-Length is {shown!r}, and the body has {len(body)} bytes. "
            f"Send the size of the JSON with which the body begins, in bytes."
        )
    return body[:num_bytes], memoryview(body)[num_bytes:]


def parse_body(
    parser: RequestParser, context: RequestContext, headers: Headers, body: bytes
) -> tuple[RequestContext, InferRequest, memoryview]:
    """Parse the body of an infer request: JSON and optional binary data."""
    text, binary = split_body(headers, body)
    request = parser.parse_infer_request(text, context)
    return limit_time(context, request.timeout_us), request, binary


def run_model(
    dataplane: DataPlane,
    context: RequestContext,
    spec: ModelSpec,
    request: InferRequest,
    binary: memoryview,
    budget: MemoryBudget,
) -> InferResult | Pending[InferResult]:
    """Run a model on an infer request, and return the encoded result.

    If the request waits for a batch, the function returns a Pending, which has the result later.

    Args:
      budget: The memory budget of the server. The outputs reserve memory in it while they are
        encoded. The encoded body reserves memory until it is sent.
    """

    def read_inputs(signature: Signature) -> Mapping[str, Array]:
        return request.read_inputs(signature, binary, context.reserve)

    prediction = dataplane.start_predict(context, spec, read_inputs, list(request.outputs))
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
    return InferResult(body, json_bytes, prediction.version, prediction.signature_name, reservation)
