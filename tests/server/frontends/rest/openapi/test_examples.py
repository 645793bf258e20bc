"""Examples of requests have words where a value is not known or too large."""

from server.dataplane.results import ExampleFeature, SampleInput, SampleRequest
from server.frontends.rest.openapi import examples
from tpuserve.saved_model.signature import Signature, TensorSpec

SIGNATURE = Signature({"inputs": TensorSpec("x:0", "string", (None,))}, {})


def test_words_take_the_place_of_the_many_values_of_a_feature() -> None:
    features = {
        "age": ExampleFeature("int64", 1, (7,)),
        "pixels": ExampleFeature("float", 5000),
        "ids": ExampleFeature("int64", None),
    }
    sample = SampleRequest({"inputs": SampleInput((1,), None, features)})
    body, is_valid = examples.build_examples_body("serving_default", SIGNATURE, sample)
    assert not is_valid
    assert body["examples"] == [
        {
            "age": [7],
            "pixels": "Replace this text by 5000 values of type float.",
            "ids": "Replace this text by values of type int64.",
        }
    ]
