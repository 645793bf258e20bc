import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.tpu import functional
from tensorflow.python.tpu.ops import tpu_ops

import trainer
from tests.trainer import exports, programs
from tests.trainer.exports import wrap_model_fn
from tpuserve import tags
from tpuserve.errors import ExportError
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1

BATCHES = trainer.BatchConfig(1, 4, 1000, [2, 4])
X = {"x": np.array([[3.0], [4.0], [5.0]], np.float32)}


def export(tmp_path: Path, model_fn: Callable[..., Any], receiver: Any = exports.raw) -> Path:
    return exports.export(tmp_path, receiver, model_fn=model_fn, export_saved_model_api_version=2)


def ops(directory: Path) -> set[str]:
    """Return the types of the ops of an export's TPU metagraph that run on the host."""
    (tpu_graph,) = (
        metagraph
        for metagraph in metagraph.read_saved_model(directory).metagraphs
        if "tpu" in metagraph.tags
    )
    return set(tpu_graph.host_ops)


@pytest.mark.parametrize("batches", [None, BATCHES], ids=["whole", "batched"])
def test_a_whole_model_is_put_on_the_tpu_in_one_line(
    tmp_path: Path, batches: trainer.BatchConfig | None
) -> None:
    directory = export(tmp_path, wrap_model_fn(batches))
    assert ("BatchFunction" in ops(directory)) == (batches is not None)
    assert exports.answers(directory, X)["y"].tolist() == [[1.5], [2.0], [2.5]]


@pytest.mark.slow
@pytest.mark.parametrize("batches", [None, BATCHES], ids=["whole", "batched"])
def test_all_export_outputs_and_parsing_receivers_work(
    tmp_path: Path, batches: trainer.BatchConfig | None
) -> None:
    directory = export(tmp_path, wrap_model_fn(batches, exports.three_outputs), exports.parsing)
    exports.check_three_outputs(directory)


def test_model_fn_hears_of_the_tpu_in_the_tpu_metagraph_alone(tmp_path: Path) -> None:
    all_params: list[dict[str, Any]] = []

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        if mode == trainer.ModeKeys.PREDICT:
            all_params.append(params)
        return wrap_model_fn(None)(features, labels, mode, params)

    export(tmp_path, model_fn)
    assert all_params == [{"rate": 0.5, "use_tpu": False}, {"rate": 0.5, "use_tpu": True}]


WORDS = ["red", "green", "blue"]


def text() -> trainer.ServingInputReceiver:
    """Return a receiver of tf.Examples with a word each; the host parses them."""
    serialized = v1.placeholder(tf.string, [None], name="serialized")
    parsed = tf.io.parse_example(serialized, {"word": tf.io.FixedLenFeature([], tf.string)})
    return trainer.ServingInputReceiver(parsed, {"examples": serialized})


def in_graph() -> Any:
    ids = tf.lookup.KeyValueTensorInitializer(WORDS, np.arange(3, dtype=np.int32))
    return tf.lookup.StaticHashTable(ids, 0)


def classifier(place: Callable[..., Any], vocabulary: Callable[[], Any] = in_graph) -> Any:
    """Return a model_fn that looks up a word's row in a table and doubles it.

    Args:
      place: takes a function of ids and the ids; runs the function on the TPU.
      vocabulary: builds the lookup table from words to ids.
    """

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode != trainer.ModeKeys.PREDICT:
            features = {"word": tf.constant(["red", "blue"])}
        ids = tf.cast(vocabulary().lookup(features["word"]), tf.int32)
        with v1.variable_scope("dense", reuse=v1.AUTO_REUSE, use_resource=True):
            weights = v1.get_variable("weights", initializer=[[1.0, -1.0], [2.0, 0.5], [3.0, 0.0]])

        def network(ids: Any) -> Any:
            return tf.matmul(tf.one_hot(ids, 3), weights) * 2.0

        on_tpu = mode == trainer.ModeKeys.PREDICT and params["use_tpu"]
        logits = place(network, ids) if on_tpu else network(ids)
        step = v1.train.get_global_step()
        loss = tf.reduce_sum(logits)
        outputs = {
            "serving_default": trainer.PredictOutput({"logits": logits}),
            "classes": trainer.ClassificationOutput(scores=logits),
        }
        return trainer.TPUEstimatorSpec(
            mode,
            {"logits": logits},
            loss,
            v1.assign_add(step, 1) if mode == trainer.ModeKeys.TRAIN else None,
            export_outputs=outputs if mode == trainer.ModeKeys.PREDICT else None,
        )

    return model_fn


def by_inference_on_tpu(network: Any, ids: Any) -> Any:
    (logits,) = trainer.inference_on_tpu(network, [ids], 1, 4, 1000, [2, 4])
    return logits


def by_hand(network: Any, ids: Any) -> Any:
    @tf.nondifferentiable_batch_function(1, 4, 1000, [2, 4], autograph=False)
    def batched(ids: Any) -> Any:
        @function.Defun(capture_resource_var_by_value=False)
        def computation() -> Any:
            return v1.tpu.rewrite(network, [ids])

        return functional.TPUPartitionedCall(
            args=computation.captured_inputs,
            device_ordinal=tpu_ops.tpu_ordinal_selector(),
            Tout=[argument.type for argument in computation.definition.signature.output_arg],
            f=computation,
        )

    (logits,) = batched(ids)
    logits.set_shape([None, 2])
    return logits


def by_call_computation(network: Any, ids: Any) -> Any:
    (logits,) = trainer.call_computation(
        ids, lambda tokens: v1.tpu.rewrite(network, [tokens]), BATCHES
    )
    return logits


def by_one_function(network: Any, ids: Any) -> Any:
    @tf.function(autograph=False)
    def computation(ids: Any) -> Any:
        return v1.tpu.rewrite(network, [ids])

    called = computation.get_concrete_function(tf.TensorSpec([None], tf.int32))
    (logits,) = functional.TPUPartitionedCall(
        args=[ids, *called.captured_inputs],
        device_ordinal=tpu_ops.tpu_ordinal_selector(),
        Tout=[tf.float32],
        f=called,
    )
    logits.set_shape([None, 2])
    return logits


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [by_inference_on_tpu, by_call_computation, by_hand, by_one_function]
)
def test_strings_and_tables_stay_on_the_host(tmp_path: Path, place: Any) -> None:
    directory = export(tmp_path, classifier(place), text)
    assert {"ParseExampleV2", "LookupTableFindV2"} <= ops(directory)
    words = ["blue", "red", "green"]
    inputs = {"examples": exports.examples(word=[word.encode() for word in words])}
    logits = exports.answers(directory, inputs)["logits"]
    assert logits.tolist() == [[6.0, 0.0], [2.0, -2.0], [4.0, 1.0]]
    (tensors,) = exports.answers(directory, {"inputs": inputs["examples"]}, "classes").values()
    assert tensors.tolist() == logits.tolist()


def test_a_vocabulary_file_goes_along_for_both_metagraphs(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("\n".join(WORDS))

    def from_file() -> Any:
        lines = tf.lookup.TextFileInitializer(
            str(file),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        return tf.lookup.StaticVocabularyTable(lines, 1)

    directory = export(tmp_path, classifier(by_hand, from_file), text)
    file.unlink()
    assert [metagraph.assets for metagraph in metagraph.read_saved_model(directory).metagraphs] == [
        ("words.txt",)
    ] * 2
    inputs = {"examples": exports.examples(word=[b"green"])}
    assert exports.answers(directory, inputs)["logits"].tolist() == [[4.0, 1.0]]


def always(place: Callable[..., Any]) -> Any:
    """Return a model_fn that runs a part on the TPU even if params["use_tpu"] is False."""

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        if mode != trainer.ModeKeys.PREDICT:
            with v1.variable_scope("", reuse=True):
                return programs.slope_model_fn(features, labels, mode, params)
        return trainer.TPUEstimatorSpec(mode, {"y": place(lambda x: x * w, features["x"])})

    return model_fn


@pytest.mark.parametrize(
    "place",
    [by_inference_on_tpu, lambda network, x: v1.tpu.rewrite(network, [x])[0]],
    ids=["ours", "rewrite"],
)
def test_placing_parts_within_a_model_that_is_placed_as_a_whole_is_refused(
    tmp_path: Path, place: Any
) -> None:
    with pytest.raises(ExportError, match="export_saved_model_api_version=.*V2"):
        exports.export(tmp_path, model_fn=always(place), export_to_cpu=False)


def test_a_part_on_the_tpu_is_refused_in_the_metagraph_without_one(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"only if params\['use_tpu'\] is True"):
        export(tmp_path, always(by_inference_on_tpu))


def test_a_model_that_places_nothing_is_exported_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tensorflow.trainer"):
        directory = export(tmp_path, programs.slope_model_fn)
    assert "runs on the host alone" in caplog.text
    assert exports.answers(directory, X)["y"].tolist() == [[1.5], [2.0], [2.5]]


def test_metagraphs_that_a_client_can_tell_apart_are_refused(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode == trainer.ModeKeys.PREDICT and params["use_tpu"]:
            return spec._replace(predictions={"z": spec.predictions["y"]})
        return spec

    with pytest.raises(ExportError, match=r"\(y: float32 .* in the metagraph .*\(z: float32 .* in"):
        export(tmp_path, model_fn)
    assert list((tmp_path / "export").iterdir()) == []


def test_a_variable_that_only_the_tpu_metagraph_has_is_named(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode != trainer.ModeKeys.PREDICT or params["use_tpu"]:
            v1.get_variable("more", [])
        return programs.slope_model_fn(features, labels, mode, params)

    with pytest.raises(ExportError, match=r"\{serve, tpu\} has variables .* has not: more\. Make"):
        export(tmp_path, model_fn)


def test_sparse_features_cannot_be_batched(tmp_path: Path) -> None:
    def sparse() -> trainer.ServingInputReceiver:
        serialized = v1.placeholder(tf.string, [None])
        parsed = tf.io.parse_example(serialized, {"x": tf.io.VarLenFeature(tf.float32)})
        return trainer.ServingInputReceiver(parsed, {"examples": serialized})

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode == trainer.ModeKeys.PREDICT:
            features = {"x": tf.sparse.to_dense(features["x"])}
        return programs.slope_model_fn(features, labels, mode, params)

    with pytest.raises(ExportError, match="is a SparseTensor, .* leave the batch config out"):
        export(tmp_path, wrap_model_fn(BATCHES, model_fn), sparse)


def test_tensorflows_own_loader_takes_each_metagraph_by_its_exact_tags(tmp_path: Path) -> None:
    directory = export(tmp_path, wrap_model_fn(BATCHES))
    for tag_set in (tags.SERVE, tags.SERVE_TPU):
        exports.load_by_tensorflow(directory, sorted(tag_set))
    for wrong in (["tpu"], ["serve", "tpu", "x"]):
        with pytest.raises(RuntimeError, match="could not be found in SavedModel"):
            exports.load_by_tensorflow(directory, wrong)


def test_shapes_that_a_client_can_tell_apart_are_refused(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode == trainer.ModeKeys.PREDICT and params["use_tpu"]:
            return spec._replace(predictions={"y": spec.predictions["y"][:, 0]})
        return spec

    with pytest.raises(ExportError, match=r"y: float32 \[\?, 1\]\) in .*y: float32 \[\?\]\) in"):
        export(tmp_path, model_fn)
