import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidInput,
    InvalidInputNames,
    InvalidTensor,
    MetagraphNotFound,
    ModelExecutionError,
    SignatureNotFound,
    UnsafeModel,
    UnsupportedModel,
)
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.session.session_model import SessionModel

NO_TPU = TpuSystem()
EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.export(models.half_plus_two, tmp_path_factory.mktemp("half"))


@pytest.fixture(scope="module", params=[NO_TPU, EMULATED], ids=["cpu", "lowered tpu"])
def model(directory: Path, request: pytest.FixtureRequest) -> LoadedModel:
    return loader.load(directory, hardware=request.param)


def x(*values: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.array([[value] for value in values], np.float32)}


def test_model_returns_its_outputs(model: LoadedModel) -> None:
    y = model.run("serving_default", x(1, 2, 5))["y"]
    assert y.tolist() == [[2.5], [3.0], [4.5]]


def test_model_has_the_interface_of_all_runtimes(model: LoadedModel) -> None:
    assert isinstance(model, LoadedModel)
    assert model.choice.runtime == "session"


def test_choice_names_the_metagraph_and_the_device(directory: Path) -> None:
    assert str(loader.load(directory, hardware=NO_TPU).choice).startswith("{serve} on CPU (")
    choice = loader.load(directory, hardware=EMULATED).choice
    assert str(choice).startswith("{serve, tpu} on CPU through XLA (")


def test_shape_that_the_graph_can_compute_is_accepted_whatever_the_signature_says(
    model: LoadedModel,
) -> None:
    assert model.run("serving_default", {"x": np.array(4, np.float32)})["y"] == 4.0


def test_shape_that_the_graph_refuses_is_an_invalid_tensor(tmp_path: Path) -> None:
    directory = models.export(lambda x: {"y": tf.reshape(x, [2, 2])}, tmp_path)
    for hardware in (NO_TPU, EMULATED):
        model = loader.load(directory, hardware=hardware)
        with pytest.raises(InvalidTensor, match="3 values, but the requested shape has 4"):
            model.run("serving_default", x(1, 2, 3))


def test_wrong_dtype_has_the_error_text_of_tensorflow_serving(model: LoadedModel) -> None:
    with pytest.raises(InvalidTensor, match=r"Expects arg\[0\] to be float but string is provided"):
        model.run("serving_default", {"x": np.array([b"1"], object)})


def test_inputs_must_be_those_of_the_signature(model: LoadedModel) -> None:
    with pytest.raises(InvalidInputNames, match="input size does not match signature: 0!=1"):
        model.run("serving_default", {})
    with pytest.raises(InvalidInputNames, match="alias: x.* not found in request"):
        model.run("serving_default", {"z": np.zeros([1, 1], np.float32)})


def test_unknown_output_or_signature_is_an_error_with_its_name(model: LoadedModel) -> None:
    with pytest.raises(InvalidInput, match="output tensor alias not found in signature: q"):
        model.run("serving_default", x(1), ["q"])
    with pytest.raises(SignatureNotFound, match='Serving signature key "q" not found'):
        model.run("q", x(1))


def test_each_of_many_threads_gets_its_own_outputs(model: LoadedModel) -> None:
    answers: dict[int, float] = {}

    def ask(number: int) -> None:
        answers[number] = model.run("serving_default", x(number))["y"].item()

    threads = [threading.Thread(target=ask, args=[number]) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number / 2 + 2 for number in range(16)}


def test_closed_model_refuses_to_run(directory: Path) -> None:
    model = loader.load(directory, hardware=NO_TPU)
    model.close()
    with pytest.raises(ModelExecutionError):
        model.run("serving_default", x(1))


def test_missing_metagraph_is_an_error(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path, tags.SERVE)
    with pytest.raises(MetagraphNotFound, match="found {serve}"):
        loader.load(directory, hardware=EMULATED)


def test_an_op_of_another_package_is_told_with_the_package(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    model = directory / "saved_model.pb"
    # A name of the same length leaves the file readable.
    model.write_bytes(model.read_bytes().replace(b"AddV2", b"IO>V2"))
    with pytest.raises(UnsupportedModel, match="IO>V2 is of tensorflow-io: install"):
        loader.load(directory, hardware=NO_TPU)


def test_missing_variables_are_a_damaged_model(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    for path in (directory / "variables").iterdir():
        path.unlink()
    with pytest.raises(DamagedSavedModel, match=f"cannot load {directory}: .*variables"):
        loader.load(directory, hardware=NO_TPU)


def test_op_that_a_tpu_refuses_is_an_execution_error_with_its_name(tmp_path: Path) -> None:
    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.strings.to_number(tf.strings.as_string(x))}

    model = loader.load(models.export(build, tmp_path), hardware=EMULATED)
    with pytest.raises(ModelExecutionError, match="unsupported operations.*AsString"):
        model.run("serving_default", x(1))


def test_callable_does_not_depend_on_the_order_of_outputs(model: LoadedModel) -> None:
    assert isinstance(model, SessionModel)
    runner = model._runners["serving_default"]
    before = len(runner._callables)
    for _ in range(2):
        model.run("serving_default", x(1), ["y"])
    assert len(runner._callables) <= before + 1


def test_path_as_bytes_is_accepted(directory: Path) -> None:
    model = loader.load(bytes(directory), hardware=NO_TPU)
    assert model.run("serving_default", x(4))["y"] == 4.0


def test_signature_defs_are_the_whole_messages(model: LoadedModel) -> None:
    (name,) = model.signature_defs
    assert name == "serving_default"
    assert model.signature_defs[name].inputs["x"].dtype == tf.float32.as_datatype_enum


def test_default_of_the_signature_replaces_a_missing_input(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path, tags.SERVE)
    change(directory, lambda signature: signature.defaults["x"].CopyFrom(tf.make_tensor_proto(4.0)))
    model = loader.load(directory, hardware=NO_TPU)
    assert model.run("serving_default", {})["y"] == 4.0
    assert model.run("serving_default", x(2))["y"].tolist() == [[3.0]]


def test_model_of_tensorflow_2_returns_its_outputs(tmp_path: Path) -> None:
    class Twice(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": 2 * x}

    module = Twice()
    directory = tmp_path / "1"
    tf.saved_model.save(module, str(directory), signatures=module.__call__)
    model = loader.load(directory, hardware=NO_TPU)
    assert model.signatures.keys() == {"serving_default"}
    assert model.run("serving_default", {"x": np.array([3], np.float32)})["y"].tolist() == [6]


def test_unsafe_op_is_refused_before_anything_runs(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("5")

    def build(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + tf.strings.to_number(tf.io.read_file(str(secret)))}

    directory = models.export(build, tmp_path / "m", tags.SERVE)
    assert loader.load(directory, hardware=NO_TPU).run("serving_default", x(1))["y"] == 6
    with pytest.raises(UnsafeModel, match=r"path of node ReadFile \(ReadFile\) is no asset"):
        loader.load(directory, hardware=NO_TPU, forbid_unsafe_ops=True)


def test_models_of_this_project_hold_no_unsafe_op(directory: Path) -> None:
    for hardware in (NO_TPU, EMULATED):
        loader.load(directory, hardware=hardware, forbid_unsafe_ops=True).close()


def test_fallback_for_a_missing_tpu_metagraph_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = models.export(models.half_plus_two, tmp_path, tags.SERVE)
    model = loader.load(directory, hardware=EMULATED, fallback_to_cpu=True)
    assert model.choice.fallback.startswith("serving {serve} on the CPU instead: no metagraph")
    assert model.choice.fallback in caplog.text


def test_deadline_does_not_change_the_outputs(model: LoadedModel) -> None:
    for _ in range(3):
        answer = model.run("serving_default", x(1, 2, 5), timeout_ms=60_000)
        assert answer["y"].tolist() == [[2.5], [3.0], [4.5]]


def test_session_options_are_applied(directory: Path) -> None:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1).SerializeToString()
    model = loader.load(directory, hardware=NO_TPU, session_config=config)
    assert isinstance(model, SessionModel)
    assert model._session._config.intra_op_parallelism_threads == 1


def change(directory: Path, edit: Callable[[Any], Any]) -> None:
    """Edit the SignatureDef serving_default of a SavedModel in place."""
    path = directory / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    edit(proto.meta_graphs[0].signature_def["serving_default"])
    path.write_bytes(proto.SerializeToString())
