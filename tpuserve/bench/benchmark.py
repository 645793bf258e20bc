"""Measures the latency and throughput of a model on a running server, under one or more loads."""

import gc
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from tpuserve.bench import inputs as bench_inputs
from tpuserve.bench.inputs import RequestInputs, Requests, convert_document
from tpuserve.bench.load import Load
from tpuserve.bench.sender import create_sender
from tpuserve.bench.windows import Procedure, Result, measure
from tpuserve.client import Client
from tpuserve.client.address import ApiName, create_api, parse_url
from tpuserve.client.apis.rest_v1 import MALFORMED, decode_json
from tpuserve.client.call import Call, ModelReference
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import ConnectionSettings
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature

DOCUMENT_PATH = "/openapi.json"
# A key of the JSON of an example. Its value is true if the example is incomplete: a placeholder
# text stands where the user has to write a value.
_INCOMPLETE = "x-incomplete"


def request_example(
    connection: ConnectionSettings,
    model: str,
    signature_name: str,
    signature: Signature,
    batch_size: int,
    timeout_s: float,
) -> RequestInputs | None:
    """Return the server's example of a request for a signature.

    Args:
      signature_name: the name of the signature; "" for the default signature, which
        `tpuserve.client.Client.predict` defines.
      timeout_s: the time limit in seconds.

    Returns:
      The inputs. None if the server offers no valid example for the signature: the server is not
      tpuserve's, the URL is that of its gRPC port, or an input is too large for the document.
    """
    if not connection.address.is_http:
        return None
    try:
        document = _request_document(connection, timeout_s)
        path = f"/v1/models/{quote(model, safe='')}:predict"
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        examples = content["examples"]
        # If the model has only one signature, this is the default signature, whatever its name.
        default = next(iter(examples)) if len(examples) == 1 else DEFAULT_SIGNATURE
        example = examples[signature_name or default]
        request = convert_document(example["value"], signature, DOCUMENT_PATH)
        if example.get(_INCOMPLETE) or request.inputs.keys() != signature.inputs.keys():
            return None
    except (*MALFORMED, RecursionError, TpuserveError):
        # Other servers than tpuserve's have no such document, or one of another form.
        return None
    return _repeat_rows(request, signature, batch_size)


def _request_document(connection: ConnectionSettings, timeout_s: float) -> Any:
    from tpuserve.client.http_transport import HttpTransport

    transport = HttpTransport(connection)
    try:
        return decode_json(transport.send(Call(DOCUMENT_PATH), Deadline(timeout_s)))
    finally:
        transport.close()


def _repeat_rows(request: RequestInputs, signature: Signature, batch_size: int) -> RequestInputs:
    inputs = dict(request.inputs)
    for name, spec in signature.inputs.items():
        has_open_rows = spec.shape is None or (spec.shape and spec.shape[0] is None)
        if has_open_rows and inputs[name].shape[:1] == (1,):
            inputs[name] = np.repeat(inputs[name], batch_size, axis=0)
    return RequestInputs(inputs)


MAX_CONNECTIONS = 1000
"""The largest number of HTTP connections of an open loop."""

# The largest threshold that Python's garbage collector takes. With this number of collections of
# young objects before a full collection, there is no full collection.
_NEVER = 2**31 - 1

_ADVICE = (
    "The inputs {origin}. Give inputs that the model accepts: --input for a file of them, or "
    "--request-log."
)
_RANDOM = "are random values of the dtypes and shapes in the model's metadata"
GENERATED_ADVICE = _ADVICE.format(origin="are generated for the graph of the model")
"""What to do if the server refuses inputs that are generated for the graph of its model."""

_EXAMPLE = "are the example in /openapi.json of the server"
_OVER_HTTP = " If the server is tpuserve, its http:// URL has an example of such strings."


@dataclass(frozen=True)
class Target:
    """The model to measure, its server, and the settings of the requests to it.

    Attributes:
      url: the URL of the server, such as http://localhost:8501 or grpc://localhost:8500.
      api: "v1" for TensorFlow Serving's API, "v2" for the Open Inference Protocol.
      signature_name: the name of the signature; "" for the default signature, which
        `tpuserve.client.Client.predict` defines.
      api_key: the key that is sent as a bearer token; "" for none.
      ca_file: a PEM file with the certificates that the server's certificate is checked with; None
        for the certificates of the system.
      timeout_s: the time limit of a request in seconds.
    """

    url: str
    model: str
    api: ApiName = "v1"
    signature_name: str = ""
    api_key: str = ""
    ca_file: str | None = None
    timeout_s: float = 60.0


@dataclass(frozen=True)
class InputChoice:
    """The source of the inputs of requests: a request log, a file, or by default random numbers.

    Attributes:
      shapes: alias → shape, for random inputs whose shape the signature leaves open.
      file: an .npz, .json or .jsonl file of inputs, or None.
      request_log: a file of PredictionLog records that a server has written, or None.
    """

    batch_size: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    file: Path | None = None
    request_log: Path | None = None


def run_benchmark(
    target: Target,
    requests: Requests,
    loads: Sequence[Load],
    procedure: Procedure,
    progress: Callable[[int, int, str], None] = lambda done, total, step: None,
) -> list[Result]:
    """Measure a model under each load, one load after the other.

    Args:
      progress: takes the number of finished time windows, the largest possible number of time
        windows of all loads, and a description of the current load.
    """
    calls = _encode(target, requests.inputs)
    connection = _connection(target)

    async def measure_all() -> list[Result]:
        return [await measure_load(position) for position in range(len(loads))]

    async def measure_load(position: int) -> Result:
        load = loads[position]

        def on_window(count: int) -> None:
            done = position * procedure.max_windows + count
            progress(done, len(loads) * procedure.max_windows, str(load))

        on_window(0)
        connections = load.concurrency or MAX_CONNECTIONS
        sender = create_sender(connection, calls, connections, target.timeout_s)
        try:
            return await measure(sender, load, procedure, on_window, requests.advice)
        finally:
            await sender.close()

    # Run no full garbage collection during the measurement: its pause would count as latency of the
    # server.
    gc.collect()
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], _NEVER)
    try:
        return _run_on_loop(measure_all)
    finally:
        gc.set_threshold(*thresholds)


def choose_requests(target: Target, choice: InputChoice) -> Requests:
    """Read or generate the requests of a measurement.

    Strings that a model parses, such as tf.Examples, cannot be generated from its metadata.
    """
    if choice.request_log is not None:
        return Requests(bench_inputs.read_request_log(choice.request_log, target.model))
    signature = _find_signature(target)
    if choice.file is not None:
        return Requests(bench_inputs.read_file(choice.file, signature))
    has_strings = any(spec.dtype == "string" for spec in signature.inputs.values())
    if has_strings and not choice.shapes:
        example = request_example(
            _connection(target),
            target.model,
            target.signature_name,
            signature,
            choice.batch_size,
            target.timeout_s,
        )
        if example is not None:
            return Requests([example], _ADVICE.format(origin=_EXAMPLE))
    generated = bench_inputs.random_inputs(signature, choice.batch_size, choice.shapes)
    advice = _ADVICE.format(origin=_RANDOM)
    if has_strings and not parse_url(target.url).is_http:
        advice += _OVER_HTTP
    return Requests(generated, advice)


def best_under(results: Sequence[Result], percentile: float, limit_ms: float) -> Result | None:
    """Return the fastest of the results whose latency is within a limit.

    The fastest result has the most requests per second. Results with failed requests are left out.

    Returns:
      None if each result has failed requests or exceeds the limit.
    """
    within = [
        result
        for result in results
        if not result.num_errors and result.percentiles_ms[percentile] <= limit_ms
    ]
    return max(within, key=lambda result: result.requests_per_second, default=None)


def to_dict(target: Target, results: Sequence[Result]) -> dict[str, object]:
    """Return results as a dict that can be written as JSON; NaN and infinity become None."""
    return {
        "url": target.url,
        "model": target.model,
        "api": target.api,
        "results": [result_to_dict(result) for result in results],
    }


def result_to_dict(result: Result) -> dict[str, object]:
    """Return a result as dicts, lists and finite numbers, which JSON can hold."""
    return {
        "concurrency": result.load.concurrency,
        "rate": result.load.rate,
        "requests_per_second": result.requests_per_second,
        "latency_ms": {
            "mean": _finite(result.mean_ms),
            **{f"p{p:g}": _finite(ms) for p, ms in result.percentiles_ms.items()},
        },
        "requests": result.num_requests,
        "errors": result.num_errors,
        "first_error": result.first_error,
        "stable": result.is_stable,
        "windows": [
            {"requests_per_second": window.requests_per_second, "mean_ms": _finite(window.mean_ms)}
            for window in result.windows
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _connection(target: Target) -> ConnectionSettings:
    return ConnectionSettings(parse_url(target.url), target.api_key, target.ca_file)


def _find_signature(target: Target) -> Signature:
    with Client(
        target.url,
        api=target.api,
        timeout_s=target.timeout_s,
        api_key=target.api_key,
        ca_file=target.ca_file,
    ) as client:
        return client.signature(target.model, target.signature_name)


def _encode(target: Target, requests: Sequence[RequestInputs]) -> list[Call]:
    api = create_api(parse_url(target.url), target.api)
    reference = ModelReference(target.model)
    return [
        api.encode_predict(
            reference, request.inputs, target.signature_name or request.signature_name, ()
        )
        for request in requests
    ]


def _run_on_loop(main: Callable[[], Coroutine[Any, Any, list[Result]]]) -> list[Result]:
    """Run a coroutine on uvloop's event loop, which takes less time per request than asyncio's."""
    import uvloop

    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
