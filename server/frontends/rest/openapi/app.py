"""Serves the OpenAPI document, and a page with Swagger UI whose files all come from this server.

A client needs no API key for the page and its files, which reveal nothing about the models. The
document, /openapi.json, describes the models, so that a client needs a key for it if the server
requires keys. Then the page asks the user for the key, and passes it to Swagger UI's dialogue
"Authorize". The page does not store the key.
"""

import contextlib
import logging
from collections.abc import Iterable, Mapping
from html import escape
from importlib import metadata, resources
from typing import Any, TypeAlias
from urllib.parse import quote

import fastapi_offline
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import HTMLResponse, JSONResponse, Response

from server.dataplane import DataPlane, ModelSpec, SampleRequest
from server.frontends.rest.openapi import examples, open_inference, paths, schemas
from server.frontends.rest.openapi.examples import ExampleBuilder, OperationExamples
from server.frontends.rest.openapi.options import DocumentOptions
from server.frontends.rest.transport.shared_builds import SharedBuilds
from server.servables.servable import State
from tpuserve.errors import ModelNotFound, TpuserveError
from tpuserve.saved_model.signature import (
    CLASSIFY_METHOD,
    DEFAULT_SIGNATURE,
    INIT_SIGNATURE,
    REGRESS_METHOD,
)

Json: TypeAlias = dict[str, Any]
logger = logging.getLogger(__name__)
TITLE = "tpuserve"
_SERVER_TAG = "server"
SECURITY = "bearer"
"""The name of the security scheme of API keys in the document."""
_ERROR = {
    "description": "The reason why the request failed.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}


def build_document(dataplane: DataPlane, options: DocumentOptions) -> Json:
    """Build the OpenAPI document of the models that are available now.

    Args:
      dataplane: Has the models and their signatures.
      options: The settings of the server on which the document depends.
    """
    paths: Json = {
        "/v1/models": {
            "get": _get_operation("All models", "The status of each model and its versions.")
        },
        "/healthz": {
            "get": _get_operation("Health", "Whether the server is running.", "text/plain")
        },
        "/readyz": {
            "get": _get_operation("Readiness", "Whether the server accepts requests.", "text/plain")
        },
        **{
            path: {
                "get": _get_operation(
                    "Metrics", "The metrics, in the format of Prometheus.", "text/plain"
                )
            }
            for path in options.metrics_paths
        },
        **open_inference.describe_server(),
        **(open_inference.describe_control() if options.allows_control else {}),
    }
    _add_tag(paths, _SERVER_TAG)
    tags = []
    for model, versions in sorted(dataplane.models().items()):
        if any(status.state is State.AVAILABLE for status in versions):
            tag = {"name": _tag_of(model)}
            try:
                described = _describe_model(dataplane, model, options.has_console)
            except Exception as error:
                logger.exception("model %s cannot be described", model)
                described = {}
                tag["description"] = f"This model cannot be described: {error}"
            tags.append(tag)
            paths.update(_add_tag(described, tag["name"]))
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": metadata.version("tpuserve"),
            "description": "TensorFlow Serving's RESTful API below /v1, and the Open Inference "
            "Protocol below /v2, for the models of this server. Insert /versions/N after "
            "/v1/models/NAME or /v2/models/NAME, or /labels/L after the former, to choose a "
            "version.",
        },
        "tags": [*tags, {"name": _SERVER_TAG, "description": "All models, and health."}],
        "paths": paths,
    }
    if options.requires_keys:
        scheme = {"type": "http", "scheme": "bearer", "description": "An API key of this server."}
        document["components"] = {"securitySchemes": {SECURITY: scheme}}
        document["security"] = [{SECURITY: []}]
    return document


def _tag_of(model: str) -> str:
    return f"model {model}"


def _add_tag(paths: Json, tag: str) -> Json:
    """Set the tag by which Swagger UI groups operations, and return the operations.

    Args:
      paths: The operations by their paths; changed in place.
      tag: The name of the tag.
    """
    for operations in paths.values():
        for operation in operations.values():
            operation["tags"] = [tag]
    return paths


def _describe_model(dataplane: DataPlane, model: str, has_console: bool) -> Json:
    base = f"/v1/models/{quote(model, safe='')}"
    paths: Json = {
        base: {"get": _get_operation(f"Status of {model}", "The status of its versions.")},
        f"{base}/statistics": {
            "get": _get_operation(
                f"Statistics of {model}", "The sizes and waiting times of its batches."
            )
        },
    }
    try:
        described = dataplane.metadata(ModelSpec(model), ["signature_def"])
    except ModelNotFound:  # Omit a model that was unloaded after the models were listed.
        return {}
    definitions = described.signature_defs
    signatures = {
        name: signature
        for name, signature in described.signatures.items()
        if name != INIT_SIGNATURE
    }
    dense = {name: signature for name, signature in signatures.items() if signature.is_dense}
    known = {
        name: definition
        for name, definition in definitions.items()
        if name in dense and schemas.is_signature_def(definition)
    }
    result = "Its signatures."
    if signatures.keys() - dense.keys():
        left_out = ", ".join(f"`{name}`" for name in sorted(signatures.keys() - dense.keys()))
        result += f" No request can hold the sparse or composite tensors of {left_out}."
    paths[f"{base}/metadata"] = {"get": _get_operation(f"Metadata of {model}", result)}
    if not dense:
        return paths
    builder = ExampleBuilder(model, dense, _find_samples(dataplane, model, dense), has_console)
    paths[f"{base}:predict"] = {"post": _predict(model, known, builder)}
    for verb, method in (("classify", CLASSIFY_METHOD), ("regress", REGRESS_METHOD)):
        names = [name for name, definition in known.items() if definition.method_name == method]
        if names:
            paths[f"{base}:{verb}"] = {"post": _examples(model, verb, names, builder)}
    return {**paths, **open_inference.describe_model(model, signatures, builder)}


def _find_samples(
    dataplane: DataPlane, model: str, names: Iterable[str]
) -> dict[str, SampleRequest]:
    """Return a valid request for each signature of a model, by the name of the signature.

    A signature for which no request can be made is omitted.
    """
    samples = {}
    for name in names:
        with contextlib.suppress(TpuserveError):
            samples[name] = dataplane.sample_request(ModelSpec(model, signature_name=name))
    return samples


def _predict(model: str, definitions: Mapping[str, Any], builder: ExampleBuilder) -> Json:
    requests: list[Json] = []
    responses: list[Json] = []
    for name, definition in sorted(definitions.items()):
        name_property = _signature_name(name)
        for key, schema in (
            ("instances", schemas.build_row_schema(definition.inputs)),
            ("inputs", schemas.build_columnar_schema(definition.inputs)),
        ):
            requests.append(
                _object_schema(
                    f"{name}: {key}", {**name_property, key: schema}, _required_keys(name, key)
                )
            )
        for key, schema in (
            ("predictions", schemas.build_row_schema(definition.outputs)),
            ("outputs", schemas.build_columnar_schema(definition.outputs)),
        ):
            responses.append(_object_schema(f"{name}: {key}", {key: schema}, [key]))
    return _post_operation(
        f"Predict with {model}",
        {"anyOf": requests},
        {"anyOf": responses},
        builder.build(examples.build_predict_body),
    )


def _examples(model: str, verb: str, names: list[str], builder: ExampleBuilder) -> Json:
    request = {
        "type": "object",
        "properties": {
            "signature_name": {"enum": sorted(names)},
            "context": schemas.EXAMPLE,
            "examples": {"type": "array", "items": schemas.EXAMPLE, "minItems": 1},
        },
        "required": ["examples", *([] if DEFAULT_SIGNATURE in names else ["signature_name"])],
    }
    pair = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}
    item = {"type": "array", "items": pair} if verb == "classify" else {"type": "number"}
    results = _object_schema("results", {"results": {"type": "array", "items": item}}, ["results"])
    request_examples = builder.build(examples.build_examples_body, names)
    return _post_operation(f"{verb.capitalize()} with {model}", request, results, request_examples)


def _signature_name(name: str) -> Json:
    return {"signature_name": {"const": name}}


def _required_keys(name: str, key: str) -> list[str]:
    return [key] if name == DEFAULT_SIGNATURE else ["signature_name", key]


def _object_schema(title: str, properties: Json, required: list[str]) -> Json:
    return {"title": title, "type": "object", "properties": properties, "required": required}


def _get_operation(summary: str, description: str, media_type: str = "application/json") -> Json:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": description, "content": {media_type: {}}},
            "default": _ERROR,
        },
    }


def _post_operation(
    summary: str, request: Json, response: Json, request_examples: OperationExamples
) -> Json:
    content: Json = {"schema": request}
    if request_examples.examples:
        content["examples"] = request_examples.examples
    return {
        "summary": summary,
        **({"description": request_examples.description} if request_examples.description else {}),
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "200": {
                "description": "The outputs of the model.",
                "content": {"application/json": {"schema": response}},
            },
            "default": _ERROR,
        },
    }


_HTML = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(TITLE)}</title>
<link rel="icon" href="{paths.STATIC}/favicon.png">
<link rel="stylesheet" href="{paths.STATIC}/swagger-ui.css">
</head>
<body>
<form id="key-form" hidden>
<label>This server requires an API key:
<input id="key" type="password" autocomplete="off"></label>
<button>Authorize</button>
</form>
<p id="refusal" role="alert"></p>
<div id="swagger-ui"></div>
<script src="{paths.STATIC}/swagger-ui-bundle.js"></script>
<script src="{paths.STATIC}/page.js"></script>
</body>
</html>
"""
_SCRIPT = "page.js"


def build_openapi_app(dataplane: DataPlane, options: DocumentOptions) -> FastAPI:
    """Build the ASGI application that serves the OpenAPI document and the Swagger UI page.

    The document is built again when a client requests it, so that it describes the current models.
    If several requests wait for the next build to begin, they share its result.

    Args:
      dataplane: Has the models and their signatures.
      options: The settings of the server on which the document depends.
    """
    app = FastAPI(title=TITLE, docs_url=None, redoc_url=None, openapi_url=None)

    script_text = (resources.files(__package__) / _SCRIPT).read_bytes()

    builds: SharedBuilds[JSONResponse] = SharedBuilds()

    def build() -> JSONResponse:
        return JSONResponse(build_document(dataplane, options))

    async def describe() -> JSONResponse:
        return await builds.get("", build)

    async def page() -> HTMLResponse:
        return HTMLResponse(_HTML)

    async def script() -> Response:
        return Response(script_text, media_type="text/javascript")

    app.add_api_route(paths.DESCRIPTION, describe, include_in_schema=False)
    app.add_api_route(paths.PAGE, page, include_in_schema=False)
    app.add_api_route(f"{paths.STATIC}/page.js", script, include_in_schema=False)
    files = StaticFiles(packages=[(fastapi_offline.__name__, "static")])
    app.mount(paths.STATIC, files, name="static")
    return app
