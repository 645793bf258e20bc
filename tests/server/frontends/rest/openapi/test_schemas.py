"""Schemas require what a signature requires, and no more."""

from server.frontends.rest.openapi import schemas
from tests.server.frontends.rest.v1.test_classify_regress import definition, spec
from tpuserve.saved_model.signature import Signature, TensorSpec


def build_schemas(tensor: TensorSpec) -> schemas.Json:
    """Return the schemas of a list of values and of a list of objects."""
    rows = schemas.build_row_schema(definition(Signature({"x": tensor}, {})).inputs)
    values, objects = rows["anyOf"]
    assert objects["items"]["properties"] == {"x": values["items"]}
    return {"values": values, "objects": objects}


def test_rows_of_one_tensor_are_all_values_or_all_objects() -> None:
    number = {"type": "number"}
    schema = build_schemas(spec("float32", "x", None))
    assert schema["values"] == {"type": "array", "items": number, "minItems": 1}
    assert schema["objects"]["items"]["required"] == ["x"]


def test_rows_of_two_tensors_are_objects() -> None:
    signature = Signature({"a": spec("float32", "a", None), "b": spec("string", "b", None)}, {})
    rows = schemas.build_row_schema(definition(signature).inputs)
    assert rows["items"]["required"] == ["a", "b"]


def test_known_sizes_are_required() -> None:
    schema = build_schemas(spec("float32", "x", None, 64, 64))["values"]["items"]
    assert (schema["minItems"], schema["maxItems"]) == (64, 64)
    assert (schema["items"]["minItems"], schema["items"]["maxItems"]) == (64, 64)


def test_sizes_of_an_image_are_not_required_so_that_no_browser_generates_an_example() -> None:
    schema = build_schemas(spec("float32", "x", None, 224, None, 3))["values"]["items"]
    assert schema["minItems"] == 224  # 672 numbers
    schema = build_schemas(spec("float32", "x", None, 224, 224, 3))["values"]["items"]
    assert "minItems" not in str(schema)
    assert schema["maxItems"] == 224
    assert schema["description"] == "float32 of shape 224 x 224 x 3, all elements required"
