"""Runs predict, classify and regress requests: from a parsed body to an encoded response body."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.codec import responses
from server.codec.array_to_json import JsonText
from server.dataplane import DataPlane, ModelSpec, Prediction
from server.frontends import output_memory
from server.parsing.parsed_request import ParsedRequest
from server.request import RequestContext
from server.servables import pending
from server.servables.pending import Pending
from tpuserve.errors import InvalidInput, SignatureNotFound


class EncodedResult(NamedTuple):
    """The encoded result of a predict, classify or regress request.

    Attributes:
      memory: The reservation for a large body in the memory budget. None for a small body, which
        reserves nothing.
    """

    body: JsonText
    version: int
    memory: MemoryReservation | None = None


class Operation(Protocol):
    """A function that runs one kind of request: predict, classify or regress.

    The function blocks while the model runs, unless the request waits for a batch.
    """

    def __call__(
        self,
        dataplane: DataPlane,
        context: RequestContext,
        model_spec: ModelSpec,
        request: ParsedRequest,
        budget: MemoryBudget,
    ) -> EncodedResult | Pending[EncodedResult]:
        """Run a model on a request, and return the encoded result.

        If the request waits for a batch, the function returns a Pending, which has the result
        later.

        Args:
          budget: The memory budget of the server. The outputs reserve memory in it while they are
            encoded. The encoded body reserves memory until it is sent.
        """


def _predict(
    dataplane: DataPlane,
    context: RequestContext,
    model_spec: ModelSpec,
    request: ParsedRequest,
    budget: MemoryBudget,
) -> EncodedResult | Pending[EncodedResult]:
    try:
        prediction = dataplane.start_predict(context, model_spec, request.decode_inputs)
    except SignatureNotFound as error:
        # Raise an error with another text, because TensorFlow Serving's text for an unknown
        # signature differs between REST and gRPC, and the error caught here has the text of gRPC.
        name = model_spec.effective_signature_name
        raise InvalidInput(
            f'Serving signature name: "{name}" not found in signature def'
        ) from error
    return pending.transform(
        prediction, lambda outputs: _encode_prediction(outputs, request, budget)
    )


def _encode_prediction(
    prediction: Prediction, request: ParsedRequest, budget: MemoryBudget
) -> EncodedResult:
    outputs = prediction.outputs
    encode = (
        responses.encode_row_format if request.is_row_format else responses.encode_columnar_format
    )
    with budget.reserve() as memory:
        output_memory.reserve_for_json(outputs, memory.grow)
        body = encode(outputs)
    return _hold_memory(body, prediction.version, budget)


def _hold_memory(body: JsonText, version: int, budget: MemoryBudget) -> EncodedResult:
    return EncodedResult(body, version, output_memory.reserve_for_body(body, budget))


def _make_examples_operation(
    find_method: Callable[[DataPlane], Callable[..., Any]],
    encode: Callable[[Any], JsonText],
) -> Operation:
    """Return the operation of requests whose inputs are tf.Examples."""

    def run(
        dataplane: DataPlane,
        context: RequestContext,
        model_spec: ModelSpec,
        request: ParsedRequest,
        budget: MemoryBudget,
    ) -> EncodedResult | Pending[EncodedResult]:
        started = find_method(dataplane)(context, model_spec, request.decode_examples())
        return pending.transform(started, lambda result: encode_result(result, budget))

    def encode_result(result: Any, budget: MemoryBudget) -> EncodedResult:
        with budget.reserve() as memory:
            output_memory.reserve_for_result_as_json(result, memory.grow)
            body = encode(result)
        return _hold_memory(body, result.version, budget)

    return run


OPERATIONS: Mapping[str, Operation] = {
    "predict": _predict,
    "classify": _make_examples_operation(
        lambda dataplane: dataplane.start_classify,
        lambda result: responses.encode_classifications(result.classes, result.scores),
    ),
    "regress": _make_examples_operation(
        lambda dataplane: dataplane.start_regress,
        lambda result: responses.encode_regressions(result.values),
    ),
}
"""The operations by their name in a path."""
