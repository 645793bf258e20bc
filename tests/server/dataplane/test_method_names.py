"""The method names of signatures are checked only if the setting for that check is on."""

import dataclasses

import numpy as np
import pytest

from server.dataplane import ModelSpec
from tests.server.dataplane.models import ExamplesModel, classify, serve
from tests.server.fakes import FakeModel
from tpuserve.errors import Code, TpuserveError
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD

M = ModelSpec("m")
REGRESS = ModelSpec("m", signature_name="regress")
X = {"x": np.array([1, 2], np.float32)}


class Odd(FakeModel):
    signatures = {
        "serving_default": dataclasses.replace(
            FakeModel.signatures["serving_default"], method_name="odd"
        )
    }


class OddExamples(ExamplesModel):
    signatures = {
        "serving_default": dataclasses.replace(classify, method_name="odd"),
        "regress": dataclasses.replace(ExamplesModel.signatures["regress"], method_name="odd"),
    }


def test_any_method_will_do_by_default() -> None:
    assert serve(Odd()).predict(M, lambda _: X).outputs["y"].tolist() == [2.5, 3]
    dataplane = serve(OddExamples())
    assert dataplane.classify(M, [b"a"]).version == 3
    assert dataplane.regress(REGRESS, [b"a"]).version == 3


def test_signature_of_no_api_cannot_be_predicted_with_where_that_is_checked() -> None:
    with pytest.raises(TpuserveError) as caught:
        serve(Odd(), check_method_names=True).predict(M, lambda _: X)
    assert caught.value.code is Code.INTERNAL
    assert str(caught.value) == (
        "Expected prediction signature method_name to be one of {tensorflow/serving/predict, "
        "tensorflow/serving/classify, tensorflow/serving/regress}. Was: odd"
    )


@pytest.mark.parametrize(
    ("api", "text"),
    [
        (
            "classify",
            "Expected classification signature method_name to be tensorflow/serving/classify. "
            "Was: odd",
        ),
        (
            "regress",
            "Expected regression signature method_name to be tensorflow/serving/regress. Was: odd",
        ),
        (
            "multi_inference",
            "Expected classification signature method_name to be tensorflow/serving/classify. "
            "Was: odd",
        ),
    ],
)
def test_signature_of_another_api_is_refused_where_that_is_checked(api: str, text: str) -> None:
    dataplane = serve(OddExamples(), check_method_names=True)
    ask = {
        "classify": lambda: dataplane.classify(M, [b"a"]),
        "regress": lambda: dataplane.regress(REGRESS, [b"a"]),
        "multi_inference": lambda: dataplane.multi_inference([(M, CLASSIFY_METHOD)], [b"a"]),
    }
    with pytest.raises(TpuserveError) as caught:
        ask[api]()
    assert (caught.value.code, str(caught.value)) == (Code.INVALID_ARGUMENT, text)


def test_checked_signatures_of_the_right_methods_answer() -> None:
    dataplane = serve(ExamplesModel(), check_method_names=True)
    assert dataplane.classify(M, [b"a"]).version == 3
    assert dataplane.regress(REGRESS, [b"a"]).values.tolist() == [1]
    assert len(dataplane.multi_inference([(REGRESS, REGRESS_METHOD)], [b"a"])) == 1


def test_signature_for_examples_can_be_predicted_with() -> None:
    fed = np.array([b"ab"], object)
    dataplane = serve(ExamplesModel(), check_method_names=True)
    answer = dataplane.predict(REGRESS, lambda _: {"inputs": fed}, ["outputs"])
    assert answer.outputs["outputs"].tolist() == [2]
