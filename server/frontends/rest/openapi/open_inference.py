"""Describes the routes of the Open Inference Protocol for the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from server.codec.datatypes import datatype_name
from server.frontends.rest.openapi import examples
from server.frontends.rest.openapi.examples import ExampleBuilder
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature, TensorSpec

Json: TypeAlias = dict[str, Any]

_INTEGERS: Json = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_ELEMENTS: dict[str, Json] = {"BOOL": {"type": "boolean"}, "BYTES": {"type": "string"}}
_INFER = (
    "Tensors may also follow the JSON as binary data, with the header "
    "Inference-Header-Content-Length."
)
_LOAD = (
    "Loads a model of the configuration. The answer comes when the model is available or has "
    "failed to load."
)


def describe_server() -> dict[str, Json]:
    """Return the OpenAPI operations on the server as a whole, by their paths."""
    return {
        "/v2": {"get": _operation("Server metadata", "The name, version and extensions.")},
        "/v2/health/live": {"get": _operation("Liveness", "Whether the server is running.")},
        "/v2/health/ready": {"get": _operation("Readiness", "Whether requests are accepted.")},
        "/v2/models/stats": {"get": _operation("Statistics", "The runs of all models.")},
        "/v2/repository/index": {
            "post": _operation(
                "Repository index",
                "The versions of all models, with their states.",
                {"type": "object", "properties": {"ready": {"type": "boolean"}}},
            )
        },
    }


def describe_control() -> dict[str, Json]:
    """Return the OpenAPI operations that load and unload models, by their paths.

    The name of the model is a parameter in the paths. The document cannot have paths with the names
    of the models themselves, because the server does not list unloaded models.
    """
    base = "/v2/repository/models/{model}"
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    request = {"type": "object"}
    load = _operation("Load a model", "The model is available.", request, _LOAD)
    unload = _operation("Unload a model", "The model is not served any more.", request)
    for operation in (load, unload):
        operation["parameters"] = [model]
    return {f"{base}/load": {"post": load}, f"{base}/unload": {"post": unload}}


def describe_model(
    model: str, signatures: Mapping[str, Signature], builder: ExampleBuilder
) -> dict[str, Json]:
    """Return the OpenAPI operations on a model, by their paths.

    Args:
      model: The name of the model.
      signatures: The signatures by name.
      builder: Builds the example requests of the operations.
    """
    base = f"/v2/models/{quote(model, safe='')}"
    request = {
        "anyOf": [
            _infer_schema(name, signature, name == DEFAULT_SIGNATURE or len(signatures) == 1)
            for name, signature in sorted(signatures.items())
            if signature.is_dense
        ]
    }
    request_examples = builder.build(examples.build_infer_body)
    description = f"{_INFER} {request_examples.description}".strip()
    infer = _operation(
        f"Infer with {model}",
        "The outputs of the model.",
        request,
        description,
        request_examples.examples,
    )
    metadata = _operation(f"Open Inference metadata of {model}", "Its tensors.")
    config = _operation(f"Configuration of {model}", "Triton's form.")
    for operation in (metadata, config):
        operation["parameters"] = [
            {
                "name": "signature_name",
                "in": "query",
                "description": "A signature other than the default one.",
                "schema": {"enum": sorted(signatures)},
            }
        ]
    return {
        base: {"get": metadata},
        f"{base}/ready": {"get": _operation(f"Readiness of {model}", "Whether it is available.")},
        f"{base}/config": {"get": config},
        f"{base}/stats": {"get": _operation(f"Runs of {model}", "Their number and time.")},
        f"{base}/infer": {"post": infer},
    }


def _infer_schema(name: str, signature: Signature, is_default: bool) -> Json:
    """Return the JSON schema of an infer request for a signature.

    Args:
      name: The name of the signature.
      signature: The signature.
      is_default: Whether a request that names no signature runs this signature.
    """
    inputs = [_tensor_schema(alias, spec) for alias, spec in sorted(signature.inputs.items())]
    output = {
        "type": "object",
        "properties": {"name": {"enum": sorted(signature.outputs)}},
        "required": ["name"],
    }
    parameters: Json = {"type": "object", "properties": {"signature_name": {"const": name}}}
    parameters["required"] = [] if is_default else ["signature_name"]
    return {
        "title": name,
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "parameters": parameters,
            # Allow the inputs in any order, because each input has its name.
            "inputs": {
                "type": "array",
                "items": {"anyOf": inputs} if inputs else {},
                "minItems": len(inputs),
                "maxItems": len(inputs),
            },
            "outputs": {"type": "array", "items": output, "maxItems": len(signature.outputs)},
        },
        "required": ["inputs"] if is_default else ["inputs", "parameters"],
    }


def _tensor_schema(alias: str, spec: TensorSpec) -> Json:
    datatype = datatype_name(spec)
    shape: Json = dict(_INTEGERS)
    if spec.shape is not None:
        shape["prefixItems"] = [
            {"type": "integer", "minimum": 0} if size is None else {"const": size}
            for size in spec.shape
        ]
        shape["minItems"] = shape["maxItems"] = len(spec.shape)
    element = _ELEMENTS.get(datatype, {"type": "number"})
    return {
        "type": "object",
        "properties": {
            "name": {"const": alias},
            "datatype": {"const": datatype},
            "shape": shape,
            "data": {"type": "array", "items": element},
        },
        "required": ["name", "datatype", "shape", "data"],
    }


def _operation(
    summary: str,
    result: str,
    request: Json | None = None,
    description: str = "",
    examples: Json | None = None,
) -> Json:
    error = {"type": "object", "properties": {"error": {"type": "string"}}}
    operation: Json = {
        "summary": summary,
        "responses": {
            "200": {"description": result, "content": {"application/json": {}}},
            "default": {
                "description": "The reason why the request failed.",
                "content": {"application/json": {"schema": error}},
            },
        },
    }
    if request is not None:
        content = {"schema": request, **({"examples": examples} if examples else {})}
        body = {"required": True, "content": {"application/json": content}}
        operation["requestBody"] = body
    if description:
        operation["description"] = description
    return operation
