"""Requests of the Open Inference Protocol need no name for a model's only signature."""

from collections.abc import Mapping

import numpy as np
import pytest

from server.dataplane import ModelSpec
from server.servables.servable import Array
from tests.server.fakes import FakeLoader, FakeModel
from tests.server.waiting_data_plane import WaitingDataPlane
from tpuserve.errors import SignatureNotFound
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, INIT_SIGNATURE, Signature

HALF = FakeModel.signatures[DEFAULT_SIGNATURE]
NOTHING = Signature({}, {})
OPEN = ModelSpec("half", is_open_inference=True)


class OnlyModel(FakeModel):
    """Has one signature, "only", which computes y = x / 2 + 2."""

    signatures: Mapping[str, Signature] = {"only": HALF}


@pytest.mark.parametrize("names", [("only",), ("only", INIT_SIGNATURE)])
def test_only_signature_is_the_default(names: tuple[str, ...]) -> None:
    known = {name: HALF if name == "only" else NOTHING for name in names}
    assert OPEN.find_signature(known) == ("only", HALF)


def test_serving_default_is_the_default_of_several() -> None:
    assert OPEN.find_signature({"a": NOTHING, DEFAULT_SIGNATURE: HALF})[0] == DEFAULT_SIGNATURE


@pytest.mark.parametrize(
    ("known", "name", "text"),
    [
        (("b", "a"), "", '"serving_default" not found. Model half has a, b. Send one of these'),
        (("only",), "other", '"other" not found. Model half has only. Send'),
        (("only",), "serving_default", '"serving_default" not found. Model half has only. Send'),
        ((), "", "Model half has no signature. Send"),
        ([f"s{i:02}" for i in range(40)], "", "s30, s31 and 8 more. Send"),
    ],
)
def test_error_names_the_signatures(known: tuple[str, ...], name: str, text: str) -> None:
    with pytest.raises(SignatureNotFound) as caught:
        OPEN._replace(signature_name=name).find_signature(dict.fromkeys(known, HALF))
    assert text in str(caught.value)


def test_other_requests_need_the_name() -> None:
    with pytest.raises(SignatureNotFound, match='^Serving signature key "serving_default" not'):
        ModelSpec("half").find_signature({"only": HALF})


@pytest.fixture
def loader() -> FakeLoader:
    loader = FakeLoader()
    loader.model_type = OnlyModel
    return loader


def test_prediction_names_the_signature(dataplane: WaitingDataPlane) -> None:
    def read_inputs(signature: Signature) -> Mapping[str, Array]:
        return {"x": np.array([1, 5], np.float32)}

    prediction = dataplane.predict(OPEN, read_inputs)
    assert prediction.signature_name == "only"
    assert prediction.outputs["y"].tolist() == [2.5, 4.5]
    with pytest.raises(SignatureNotFound, match='"serving_default" not found'):
        dataplane.predict(ModelSpec("half"), read_inputs)
