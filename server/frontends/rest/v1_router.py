"""Answers the requests to TensorFlow Serving's REST API, below /v1/."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from google.protobuf import json_format
from google.protobuf.message import Message

from server.admission.memory_budget import MemoryBudget
from server.admission.nonblocking import WouldBlock
from server.dataplane import DataPlane, Metadata, ModelSpec, ModelStatus, Statistics
from server.frontends.rest import errors, v1_inference
from server.frontends.rest.dispatch.path_cache import cache_short_paths
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.responses import JSON, Headers, Response
from server.frontends.rest.v1_inference import EncodedResult
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from server.servables.pending import Pending
from server.servables.servable import VersionStatus
from tpuserve.errors import InvalidInput, TpuserveError
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE


def encode_status(versions: Iterable[VersionStatus]) -> bytes:
    """Encode the states of a model's versions as the proto3 JSON of a GetModelStatusResponse.

    Integers of 64 bits are strings in proto3 JSON.
    """
    return _encode(_version_list(versions))


def encode_list(models: Mapping[str, ModelStatus]) -> bytes:
    """Encode the status of all models as JSON, sorted by name: {"models": [...]}.

    TensorFlow Serving has no such list. The entry of a model has the status of each of its
    versions.
    """
    entries = [
        {
            "name": name,
            **_version_list(status.versions),
            "status": _error(status.reason),
            **({"loaded_bytes": str(status.loaded_bytes)} if status.loaded_bytes else {}),
        }
        for name, status in sorted(models.items())
    ]
    return _encode({"models": entries})


def encode_names(models: Iterable[str]) -> bytes:
    """Encode the names of all models as JSON, sorted, as KServe does: {"models": ["a", "b"]}."""
    return _encode({"models": sorted(models)})


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode the signatures of a model as the proto3 JSON of a GetModelMetadataResponse.

    Fields with default values are included.
    """
    definitions = {
        name: _message_to_dict(message) for name, message in sorted(metadata.signature_defs.items())
    }
    return _encode(
        {
            "model_spec": {
                "name": metadata.model,
                "signature_name": "",
                "version": str(metadata.version),
            },
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )


def encode_statistics(statistics: Statistics) -> bytes:
    """Encode the batching statistics of a version as JSON, for the path /statistics.

    TensorFlow Serving has no such path.
    """
    return _encode(
        {
            "model_spec": {"name": statistics.model, "version": str(statistics.version)},
            "batching": statistics.batching,
        }
    )


def _version_list(versions: Iterable[VersionStatus]) -> dict[str, Any]:
    return {"model_version_status": [_version(status) for status in versions]}


def _version(status: VersionStatus) -> dict[str, object]:
    return {
        "version": str(status.version),
        "state": status.state.name,
        "status": _error(status.error, status.note),
    }


def _error(error: TpuserveError | None, note: str = "") -> dict[str, str]:
    if error is None:
        return {"error_code": "OK", "error_message": note}
    return {"error_code": error.code.name, "error_message": str(error)}


def _message_to_dict(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _encode(value: Any) -> bytes:
    # Lay out the JSON as libprotobuf does: one space per level, and a newline at the end.
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="replace")


_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))
_VERSION = r"(?:/(?i:versions)/([0-9]+)|/(?i:labels)/([^/:]+))?"
# The patterns of paths for POST and GET requests. The operation, such as "predict", must be in
# lower case. The other fixed parts of a path may be in upper or lower case.
_POST = re.compile(rf"(?i:/v1/models)/([^/:]+){_VERSION}:(classify|regress|predict)")
_GET = re.compile(rf"(?i:/v1/models)(?:/([^/:]+))?{_VERSION}(/metadata|/statistics)?")
_NOTHING = re.compile(r"(?!)()()()()")


@cache_short_paths
def parse_path(method: str, path: str) -> Route:
    """Parse a path below /v1/.

    Returns:
      The endpoint. Its operation is "predict", "classify", "regress", "metadata", "statistics" or
      "status".

    Raises:
      InvalidInput: The API has no such path, or the version exceeds 64 bits.
    """
    match = {"POST": _POST, "GET": _GET}.get(method, _NOTHING).fullmatch(path)
    if match is None:
        raise InvalidInput(f"Malformed request: {method} {path}")
    name, digits, label, operation = match.groups()
    return Route(
        model=_percent_decode(name or ""),
        version=_parse_version(digits) if digits else None,
        label=_percent_decode(label) if label else None,
        operation=(operation or "/status").lstrip("/"),
        runs_model=method == "POST",
        describes_model=operation == "/metadata",
        template=_template(name, digits, label, operation, method),
    )


def _template(
    name: str | None, digits: str | None, label: str | None, operation: str | None, method: str
) -> str:
    """Return the path with placeholders such as {model} in place of names and versions."""
    model = "/{model}" if name else ""
    version = "/versions/{version}" if digits else "/labels/{label}" if label else ""
    verb = f":{operation}" if method == "POST" else operation or ""
    return f"/v1/models{model}{version}{verb}"


def _percent_decode(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode(errors="replace")


def _parse_version(digits: str) -> int:
    # Remove leading zeros before the conversion: `int` refuses texts of more than 4300 digits.
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS or int(significant) > _MAX_VERSION:
        raise InvalidInput(f"Failed to convert version: {digits} to numeric.")
    return int(significant)


class V1Router:
    """The router of TensorFlow Serving's REST API.

    The class implements the interface `dispatch.router.Router`.

    Args:
      memory_budget: Bounds the memory of all requests together. Outputs reserve memory in it
        while they are encoded. None means no bound.
      lists_names_only: Whether the response to GET /v1/models has only the names of the models,
        as KServe requires. If False, it also has their status.
    """

    prefix = "/v1/"

    def __init__(
        self,
        dataplane: DataPlane,
        parser: RequestParser,
        memory_budget: MemoryBudget | None = None,
        *,
        lists_names_only: bool = False,
    ) -> None:
        self._lists_names_only = lists_names_only
        self._memory_budget = MemoryBudget(sys.maxsize) if memory_budget is None else memory_budget
        self._dataplane = dataplane
        self._parser = parser

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses. Arguments as for `v1.paths.parse_path`."""
        return parse_path(method, path)

    def handle(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        context: RequestContext,
    ) -> Response | Pending[Response]:
        """Answer one request. The arguments are those of `dispatch.router.Router.handle`."""
        if not route.runs_model:
            return Response(200, self._describe(route), model=route.model, version=route.version)
        signature = ""
        try:
            request = self._parser.parse(body, context)
            with closing(request):
                signature = request.signature_name or DEFAULT_SIGNATURE
                model_spec = ModelSpec(route.model, route.version, signature, route.label)
                infer = v1_inference.OPERATIONS[route.operation]
                result = infer(self._dataplane, context, model_spec, request, self._memory_budget)
        except WouldBlock:
            raise
        except Exception as error:
            return _error_response(error, route, signature)
        if isinstance(result, Pending):
            return result.then(partial(_respond, result.finish, route, signature))
        return _success_response(result, route, signature)

    def _describe(self, route: Route) -> bytes:
        if route.operation == "metadata":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            model_spec = ModelSpec(route.model, route.version, label=route.label)
            return encode_metadata(self._dataplane.metadata(model_spec, ["signature_def"]))
        if route.operation == "statistics":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            model_spec = ModelSpec(route.model, route.version, label=route.label)
            return encode_statistics(self._dataplane.statistics(model_spec))
        if route.model:
            # Ignore a version label in the path, as TensorFlow Serving does.
            return encode_status(self._dataplane.status(route.model, route.version))
        if route.version is not None or route.label is not None:
            raise InvalidInput("Missing model name in request.")
        listed = self._dataplane.list_models()
        return encode_names(listed) if self._lists_names_only else encode_list(listed)


def _respond(finish: Callable[[], EncodedResult], route: Route, signature: str) -> Response:
    try:
        return _success_response(finish(), route, signature)
    except Exception as error:
        return _error_response(error, route, signature)


def _success_response(result: EncodedResult, route: Route, signature: str) -> Response:
    body, version, memory = result
    return Response(200, body, JSON, (), "OK", route.model, version, signature, memory)


def _error_response(error: Exception, route: Route, signature: str) -> Response:
    # Convert errors to responses in this module, where the signature is known, because the access
    # log shows the signature of failed requests too.
    response = errors.response_to_error(error)
    return response._replace(model=route.model, version=route.version, signature=signature)
