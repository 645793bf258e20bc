"""Signatures that take the same tensors run in one session run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.dataplane import Classification, ModelSpec, Regression
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.waiting_data_plane import WaitingDataPlane
from tpuserve.errors import InvalidInput, InvalidTensor, ModelExecutionError, SignatureNotFound
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD

v1 = tf.compat.v1

EXAMPLES = np.array([b"a", b"bcd"], object)
TWO = {"lengths": ["outputs"], "runs": ["scores"]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model whose signature "runs" returns how many session runs it has had."""
    directory = tmp_path_factory.mktemp("counting") / "1"
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="examples")
        other = v1.placeholder(tf.string, [None], name="other")
        runs = v1.get_variable("runs", initializer=0.0, use_resource=True)
        count = v1.assign_add(runs, 1.0)
        lengths = tf.cast(tf.strings.length(examples), tf.float32)
        scores = tf.fill([tf.size(examples), 1], count)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={
                "lengths": _signature(examples, REGRESS_METHOD, outputs=lengths + 0 * count),
                "runs": _signature(examples, CLASSIFY_METHOD, scores=scores),
                "other": _signature(other, REGRESS_METHOD, outputs=tf.strings.length(other)),
            },
        )
        builder.save()
    return directory


def _signature(tensor: Any, method: str, **outputs: Any) -> Any:
    info = v1.saved_model.build_tensor_info
    return v1.saved_model.build_signature_def(
        {"inputs": info(tensor)}, {alias: info(output) for alias, output in outputs.items()}, method
    )


@pytest.fixture
def model(directory: Path) -> LoadedModel:
    return loader.load(directory)


def test_all_signatures_run_in_one_session_run(model: LoadedModel) -> None:
    for run in (1, 2):
        outputs = model.run_multi(TWO, {"inputs": EXAMPLES})
        assert outputs["lengths"]["outputs"].tolist() == [1, 3]
        assert outputs["runs"]["scores"].tolist() == [[run], [run]]


def test_one_signature_can_run_alone_and_with_a_deadline(model: LoadedModel) -> None:
    outputs = model.run_multi({"runs": ["scores"]}, {"inputs": EXAMPLES}, timeout_ms=60_000)
    assert {name: list(by_alias) for name, by_alias in outputs.items()} == {"runs": ["scores"]}
    assert model.run_multi({}, {"inputs": EXAMPLES}) == {}


def test_signatures_with_tensors_of_their_own_get_the_same_inputs(model: LoadedModel) -> None:
    names = {"lengths": ["outputs"], "other": ["outputs"]}
    outputs = model.run_multi(names, {"inputs": EXAMPLES})
    assert outputs["lengths"]["outputs"].tolist() == outputs["other"]["outputs"].tolist() == [1, 3]


def test_invalid_requests_are_refused(model: LoadedModel) -> None:
    inputs = {"inputs": EXAMPLES}
    with pytest.raises(SignatureNotFound):
        model.run_multi({"nothing": ["outputs"]}, inputs)
    with pytest.raises(InvalidInput, match="output tensor alias not found"):
        model.run_multi({"lengths": ["scores"]}, inputs)
    with pytest.raises(InvalidTensor):
        model.run_multi(TWO, {"inputs": np.zeros(2, np.float32)})


def test_closed_model_refuses_to_run(model: LoadedModel) -> None:
    model.run_multi(TWO, {"inputs": EXAMPLES})
    model.close()
    with pytest.raises(ModelExecutionError):
        model.run_multi(TWO, {"inputs": EXAMPLES})


def test_multi_inference_is_one_run(directory: Path) -> None:
    manager = Manager(loader.load)
    aspire(manager, "counting", {1: directory})
    tasks = [
        (ModelSpec("counting", signature_name="runs"), CLASSIFY_METHOD),
        (ModelSpec("counting", signature_name="lengths"), REGRESS_METHOD),
    ]
    runs, lengths = WaitingDataPlane(manager).multi_inference(tasks, EXAMPLES.tolist())
    assert isinstance(runs, Classification)
    assert isinstance(lengths, Regression)
    assert runs.scores is not None
    assert runs.scores.tolist() == [[1], [1]]
    assert lengths.values.tolist() == [1, 3]
    manager.close(1)


def test_multi_inference_of_a_model_that_tensorflow_2_has_exported(tmp_path: Path) -> None:
    class Lengths(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
        def classify(self, inputs: Any) -> Any:
            return {"scores": tf.cast(tf.strings.length(inputs), tf.float32)[:, tf.newaxis]}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
        def regress(self, inputs: Any) -> Any:
            return {"outputs": -tf.cast(tf.strings.length(inputs), tf.float32)}

    module = Lengths()
    tf.saved_model.save(module, str(tmp_path / "1"), {"c": module.classify, "r": module.regress})
    manager = Manager(loader.load)
    aspire(manager, "lengths", {1: tmp_path / "1"})
    tasks = [
        (ModelSpec("lengths", signature_name="c"), CLASSIFY_METHOD),
        (ModelSpec("lengths", signature_name="r"), REGRESS_METHOD),
    ]
    classified, regressed = WaitingDataPlane(manager).multi_inference(tasks, EXAMPLES.tolist())
    assert isinstance(classified, Classification)
    assert isinstance(regressed, Regression)
    assert classified.scores is not None
    assert classified.scores.tolist() == [[1], [3]]
    assert regressed.values.tolist() == [-1, -3]
    manager.close(1)
