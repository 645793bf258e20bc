"""What the schemas of tensors demand, and what they leave open."""

from server.frontends.rest.openapi import schemas
from tests.server.frontends.rest.v1.test_classify_regress import definition, spec
from tpuserve.saved_model.signature import Signature, TensorSpec


def of_one(tensor: TensorSpec) -> schemas.Json:
    """The schemas of a list of values and of a list of objects."""
    rows = schemas.rows(definition(Signature({"x": tensor}, {})).inputs)
    values, objects = rows["anyOf"]
    assert objects["items"]["properties"] == {"x": values["items"]}
    return {"values": values, "objects": objects}


def test_rows_of_one_tensor_are_all_values_or_all_objects() -> None:
    number = {"type": "number"}
    made = of_one(spec("float32", "x", None))
    assert made["values"] == {"type": "array", "items": number, "minItems": 1}
    assert made["objects"]["items"]["required"] == ["x"]


def test_rows_of_two_tensors_are_objects() -> None:
    signature = Signature({"a": spec("float32", "a", None), "b": spec("string", "b", None)}, {})
    rows = schemas.rows(definition(signature).inputs)
    assert rows["items"]["required"] == ["a", "b"]


def test_sizes_that_are_known_are_demanded() -> None:
    made = of_one(spec("float32", "x", None, 64, 64))["values"]["items"]
    assert (made["minItems"], made["maxItems"]) == (64, 64)
    assert (made["items"]["minItems"], made["items"]["maxItems"]) == (64, 64)


def test_sizes_of_an_image_are_told_so_that_no_page_makes_up_an_example_of_it() -> None:
    made = of_one(spec("float32", "x", None, 224, None, 3))["values"]["items"]
    assert made["minItems"] == 224  # 672 numbers
    made = of_one(spec("float32", "x", None, 224, 224, 3))["values"]["items"]
    assert "minItems" not in str(made)
    assert made["maxItems"] == 224
    assert made["description"] == "float32, 224 x 224 x 3: all of it"
