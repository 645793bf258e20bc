import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tpuserve import loader, tags
from tpuserve.devices import Hardware
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidInput,
    InvalidInputNames,
    InvalidTensor,
    MetagraphNotFound,
    ModelExecutionError,
    SignatureNotFound,
)
from tpuserve.loader import LoadedModel

pytestmark = pytest.mark.slow

NO_TPU = Hardware()
EMULATED = Hardware(tpu_cores=1, hosts=1, is_emulated=True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.export(models.half_plus_two, tmp_path_factory.mktemp("half"))


@pytest.fixture(scope="module", params=[NO_TPU, EMULATED], ids=["cpu", "lowered tpu"])
def model(directory: Path, request: pytest.FixtureRequest) -> LoadedModel:
    return loader.load(directory, hardware=request.param)


def x(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array([[each] for each in values], np.float32)}


def test_a_model_answers(model: LoadedModel) -> None:
    y = model.run("serving_default", x(1, 2, 5))["y"]
    assert y.tolist() == [[2.5], [3.0], [4.5]]


def test_the_choice_says_which_metagraph_runs_on_what(directory: Path) -> None:
    assert str(loader.load(directory, hardware=NO_TPU).choice).startswith("{serve} on CPU (")
    choice = loader.load(directory, hardware=EMULATED).choice
    assert str(choice).startswith("{serve, tpu} on CPU through XLA (")


def test_a_shape_that_the_graph_can_compute_is_answered_whatever_the_signature_says(
    model: LoadedModel,
) -> None:
    assert model.run("serving_default", {"x": np.float32(4)})["y"] == 4.0


def test_a_shape_that_the_graph_refuses_is_the_callers_error(tmp_path: Path) -> None:
    directory = models.export(lambda x: {"y": tf.reshape(x, [2, 2])}, tmp_path)
    for hardware in (NO_TPU, EMULATED):
        model = loader.load(directory, hardware=hardware)
        with pytest.raises(InvalidTensor, match="3 values, but the requested shape has 4"):
            model.run("serving_default", x(1, 2, 3))


def test_a_wrong_type_is_named_as_tensorflow_serving_names_it(model: LoadedModel) -> None:
    with pytest.raises(InvalidTensor, match=r"Expects arg\[0\] to be float but string is provided"):
        model.run("serving_default", {"x": np.array([b"1"], object)})


def test_inputs_must_be_those_of_the_signature(model: LoadedModel) -> None:
    with pytest.raises(InvalidInputNames, match="input size does not match signature: 0!=1"):
        model.run("serving_default", {})
    with pytest.raises(InvalidInputNames, match="alias: x.* not found in request"):
        model.run("serving_default", {"z": np.zeros([1, 1], np.float32)})


def test_an_unknown_output_or_signature_is_named(model: LoadedModel) -> None:
    with pytest.raises(InvalidInput, match="output tensor alias not found in signature: q"):
        model.run("serving_default", x(1), ["q"])
    with pytest.raises(SignatureNotFound, match='Serving signature key "q" not found'):
        model.run("q", x(1))


def test_many_threads_get_their_own_answers(model: LoadedModel) -> None:
    answers: dict[int, float] = {}

    def ask(number: int) -> None:
        answers[number] = model.run("serving_default", x(number))["y"].item()

    threads = [threading.Thread(target=ask, args=[number]) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == {number: number / 2 + 2 for number in range(16)}


def test_a_closed_model_runs_no_more(directory: Path) -> None:
    model = loader.load(directory, hardware=NO_TPU)
    model.close()
    with pytest.raises(ModelExecutionError):
        model.run("serving_default", x(1))


def test_a_metagraph_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path, tags.SERVE)
    with pytest.raises(MetagraphNotFound, match="found {serve}"):
        loader.load(directory, hardware=EMULATED)


def test_missing_variables_are_a_damaged_model(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    for each in (directory / "variables").iterdir():
        each.unlink()
    with pytest.raises(DamagedSavedModel, match=f"cannot load {directory}: .*variables"):
        loader.load(directory, hardware=NO_TPU)


def test_an_op_that_a_tpu_refuses_is_the_models_fault_and_named(tmp_path: Path) -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.strings.to_number(tf.strings.as_string(x))}

    model = loader.load(models.export(build, tmp_path), hardware=EMULATED)
    with pytest.raises(ModelExecutionError, match="unsupported operations.*AsString"):
        model.run("serving_default", x(1))


def test_the_order_of_outputs_makes_no_callable_of_its_own(model: LoadedModel) -> None:
    before = len(model._callables)
    for _ in range(2):
        model.run("serving_default", x(1), ["y"])
    assert len(model._callables) <= before + 1


def test_a_path_as_bytes_is_taken_as_an_estimator_returns_it(directory: Path) -> None:
    model = loader.load(bytes(directory), hardware=NO_TPU)
    assert model.run("serving_default", x(4))["y"] == 4.0
