"""OpenAPI of what is served: a schema per signature of each model."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any, TypeAlias
from urllib.parse import quote

from server.dataplane import DataPlane, ModelSpec
from server.frontends.rest.openapi import schemas
from server.servables.servable import State
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import CLASSIFY_METHOD, DEFAULT_SIGNATURE, REGRESS_METHOD

Json: TypeAlias = dict[str, Any]

TITLE = "tpuserve"
SECURITY = "bearer"
"""The name that the API keys have in the document."""

_ERROR = {
    "description": "What is wrong with the request, or with the server.",
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


def describe(dataplane: DataPlane, wants_keys: bool = False) -> Json:
    """The OpenAPI document of the models that are available at the moment.

    Args:
      wants_keys: whether requests need an API key, sent as a bearer token.
    """
    paths: Json = {
        "/v1/models": {"get": _get("All models", "How each model and its versions are.")},
        "/healthz": {"get": _get("Health", "Whether the server runs.", "text/plain")},
        "/readyz": {"get": _get("Readiness", "Whether it takes requests.", "text/plain")},
    }
    for model, versions in sorted(dataplane.models().items()):
        if any(each.state is State.AVAILABLE for each in versions):
            paths.update(_paths_of(dataplane, model))
    described: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": metadata.version("tpuserve"),
            "description": "TensorFlow Serving's RESTful API for the models that are served here. "
            "Below /v1/models/NAME, a version is named by /versions/N or /labels/L.",
        },
        "paths": paths,
    }
    if wants_keys:
        scheme = {"type": "http", "scheme": "bearer", "description": "An API key of this server."}
        described["components"] = {"securitySchemes": {SECURITY: scheme}}
        described["security"] = [{SECURITY: []}]
    return described


def _paths_of(dataplane: DataPlane, model: str) -> Json:
    base = f"/v1/models/{quote(model, safe='')}"
    found: Json = {
        base: {"get": _get(f"Status of {model}", "The status of its versions.")},
        f"{base}/metadata": {"get": _get(f"Metadata of {model}", "Its signatures.")},
    }
    try:
        definitions = dataplane.metadata(ModelSpec(model), ["signature_def"]).signature_defs
    except TpuserveError:  # it has just been unloaded
        return {}
    known = {name: each for name, each in definitions.items() if schemas.is_described(each)}
    found[f"{base}:predict"] = {"post": _predict(model, known)}
    for verb, method in (("classify", CLASSIFY_METHOD), ("regress", REGRESS_METHOD)):
        names = [name for name, each in known.items() if each.method_name == method]
        if names:
            found[f"{base}:{verb}"] = {"post": _examples(model, verb, names)}
    return found


def _predict(model: str, definitions: Mapping[str, Any]) -> Json:
    requests: list[Json] = []
    responses: list[Json] = []
    for name, each in sorted(definitions.items()):
        named = _signature_name(name)
        for key, schema in (
            ("instances", schemas.rows(each.inputs)),
            ("inputs", schemas.columns(each.inputs)),
        ):
            requests.append(_object(f"{name}: {key}", {**named, key: schema}, _required(name, key)))
        for key, schema in (
            ("predictions", schemas.rows(each.outputs)),
            ("outputs", schemas.columns(each.outputs)),
        ):
            responses.append(_object(f"{name}: {key}", {key: schema}, [key]))
    return _post(f"Predict with {model}", {"anyOf": requests}, {"anyOf": responses})


def _examples(model: str, verb: str, names: list[str]) -> Json:
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
    results = _object("results", {"results": {"type": "array", "items": item}}, ["results"])
    return _post(f"{verb.capitalize()} with {model}", request, results)


def _signature_name(name: str) -> Json:
    return {"signature_name": {"const": name}}


def _required(name: str, key: str) -> list[str]:
    return [key] if name == DEFAULT_SIGNATURE else ["signature_name", key]


def _object(title: str, properties: Json, required: list[str]) -> Json:
    return {"title": title, "type": "object", "properties": properties, "required": required}


def _get(summary: str, description: str, media_type: str = "application/json") -> Json:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": description, "content": {media_type: {}}},
            "default": _ERROR,
        },
    }


def _post(summary: str, request: Json, response: Json) -> Json:
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {
                "description": "The model's answer.",
                "content": {"application/json": {"schema": response}},
            },
            "default": _ERROR,
        },
    }
