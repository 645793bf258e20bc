"""Conversion: what goes to the TPU, what stays on the host, and that both metagraphs agree."""

import filecmp
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.export import answers
from tests.tpuserve.export.conversion import models
from tpuserve.errors import ExportError
from tpuserve.export import BatchConfig, WarmUp, convert
from tpuserve.export.conversion.conversion_report import Conversion, ConvertedSignature
from tpuserve.saved_model import metagraph


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Dense(), tmp_path_factory.mktemp("dense") / "model")


@pytest.fixture(scope="module")
def word_scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.WordScores(), tmp_path_factory.mktemp("words") / "model")


@pytest.fixture(scope="module")
def version_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("version_1")
    return models.save_version_1(directory / "model", directory / "words.txt")


def only(conversion: Conversion) -> ConvertedSignature:
    (signature,) = conversion.signatures
    return signature


def ops(conversion: Conversion, place: str) -> set[str]:
    return {op.op for op in only(conversion).host_ops if op.place == place}


def test_a_model_without_host_ops_goes_to_the_tpu_whole(dense: Path, tmp_path: Path) -> None:
    signature = only(convert(dense, tmp_path / "out", whole=True))
    assert signature.num_host_ops == 0
    outputs = answers.both(str(tmp_path / "out"), x=np.array([[1, 2], [-1, 0]], np.float32))
    # [1, 2] w = [5, 0] and [-1, 0] w = [-1, 1]; then relu, then + 1.
    np.testing.assert_allclose(outputs["y"], [[6, 1], [1, 2]])


def test_variables_and_the_cpu_metagraph_are_kept(dense: Path, tmp_path: Path) -> None:
    out = convert(dense, tmp_path / "out").out
    (before,), (cpu, tpu) = metagraph.read_metagraphs(dense), metagraph.read_metagraphs(out)
    assert cpu == before
    assert tpu.signatures.keys() == cpu.signatures.keys()
    assert tpu.variables == cpu.variables
    files = [path.name for path in (dense / "variables").iterdir()]
    assert (
        filecmp.cmpfiles(dense / "variables", out / "variables", files, shallow=False)[0] == files
    )


def test_variables_behind_a_link_are_kept(dense: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("saved_model.pb", "variables"):
        (linked / name).symlink_to(dense / name)
    convert(linked, tmp_path / "out")
    assert metagraph.read_saved_model(tmp_path / "out").problems == ()
    outputs = answers.both(str(tmp_path / "out"), x=np.array([[1, 2]], np.float32))
    np.testing.assert_allclose(outputs["y"], [[6, 1]])


@pytest.mark.slow
def test_an_output_that_is_an_input_is_passed_through_both_metagraphs(tmp_path: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        key, x = v1.placeholder(tf.string, [None], "key"), v1.placeholder(tf.float32, [None, 2])
        outputs = {"key": key, "x": x, "y": x @ [[1.0], [2.0]]}
        v1.saved_model.simple_save(session, str(tmp_path / "in"), {"key": key, "x": x}, outputs)
    convert(tmp_path / "in", tmp_path / "out")
    rows = {"key": answers.strings("7"), "x": np.array([[3, 4]], np.float32)}
    result = answers.both(str(tmp_path / "out"), **rows)
    assert {alias: value.tolist() for alias, value in result.items()} == {
        "key": [b"7"],
        "x": [[3, 4]],
        "y": [[11]],
    }


def test_strings_and_tables_stay_in_front_and_behind(word_scores: Path, tmp_path: Path) -> None:
    conversion = convert(word_scores, tmp_path / "out")
    assert {"StringSplitV2", "LookupTableFindV2"} <= ops(conversion, "in front")
    assert ops(conversion, "behind") == {"GatherV2"}
    outputs = answers.both(str(tmp_path / "out"), text=answers.strings("a b", "c c", "z a"))
    # The means of the word vectors are [.5, .5], [1, 1] and [.5, 0]; times w they are the scores.
    np.testing.assert_allclose(outputs["scores"], np.array([[2, 3], [4, 6], [0.5, 1]]))
    assert outputs["best"].tolist() == [b"high"] * 3


@pytest.mark.numeric
def test_ops_of_unknown_result_size_stay_behind(tmp_path: Path) -> None:
    directory = models.save(models.Detector(), tmp_path / "model")
    conversion = convert(directory, tmp_path / "out")
    assert ops(conversion, "behind") == {"NonMaxSuppressionV3", "GatherV2"}
    boxes = [[0, 0, 1, 1, 0.9], [0, 0, 1, 0.9, 0.8], [2, 2, 3, 3, 0.7]]
    outputs = answers.both(str(tmp_path / "out"), features=np.array(boxes, np.float32))
    # The second box is dropped, because it overlaps the first, whose score is higher.
    np.testing.assert_allclose(outputs["scores"], [0.9, 0.7], rtol=1e-6)


def test_a_check_of_the_input_runs_before_the_tpu_and_one_of_a_result_is_left_out(
    tmp_path: Path,
) -> None:
    directory = models.save(models.CheckedModel(), tmp_path / "model")
    conversion = convert(directory, tmp_path / "out")
    assert ops(conversion, "in front") == {"Assert"}
    assert ops(conversion, "") == {"Assert", "CheckNumerics"}
    with pytest.raises(Exception, match="x >= 0 did not hold"):
        answers.both(str(tmp_path / "out"), x=np.array([-1], np.float32))


@pytest.mark.numeric
def test_a_version_1_model_keeps_its_asset_and_shares_its_variables(
    version_1: Path, tmp_path: Path
) -> None:
    out = convert(version_1, tmp_path / "out").out
    assert (out / "assets" / "words.txt").read_text().split() == list(models.WORDS)
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([1.0, -1.0])
    example.features.feature["word"].bytes_list.value.append(b"c")
    outputs = answers.both(str(out), examples=np.array([example.SerializeToString()], object))
    # x = [1, -1], so x w + bias of "c" is 1 - 2 + 2.
    np.testing.assert_allclose(outputs["p"], [[1 / (1 + np.exp(-1))]], rtol=1e-5)


def test_signatures_that_share_nodes_are_converted_each(version_1: Path, tmp_path: Path) -> None:
    conversion = convert(version_1, tmp_path / "out")
    assert [signature.functions for signature in conversion.signatures] == [
        ("tpu_raw",),
        ("tpu_serving_default",),
    ]
    inputs = {"x": np.array([[1, -1]], np.float32), "word": answers.strings("b")}
    outputs = answers.both(str(tmp_path / "out"), "raw", **inputs)
    np.testing.assert_allclose(outputs["p"], [[0.5]])


def test_other_signatures_stay_on_the_host(version_1: Path, tmp_path: Path) -> None:
    conversion = convert(version_1, tmp_path / "out", signatures=["raw"])
    assert [signature.name for signature in conversion.signatures] == ["raw"]
    tpu = metagraph.read_metagraphs(tmp_path / "out")[1]
    assert set(tpu.signatures) == {"raw", "serving_default"}
    assert [computation.name for computation in tpu.computations] == ["tpu_raw"]


def test_an_aliased_function_goes_to_the_tpu_and_the_rest_stays(
    dense: Path, tmp_path: Path
) -> None:
    signature = only(convert(dense, tmp_path / "out", function="tpu_candidate"))
    assert signature.num_host_ops > 0
    tpu = metagraph.read_metagraphs(tmp_path / "out")[1]
    assert {"MatMul", "Relu"} <= set(tpu.computations[0].tpu_ops)
    assert "AddV2" in tpu.host_ops
    outputs = answers.both(str(tmp_path / "out"), x=np.array([[1, 2]], np.float32))
    np.testing.assert_allclose(outputs["y"], [[6, 1]])


def test_batches_are_padded_to_the_allowed_sizes(word_scores: Path, tmp_path: Path) -> None:
    config = BatchConfig(2, 8, 1000, [1, 8])
    convert(word_scores, tmp_path / "out", batch_config=config, warm_up=WarmUp())
    tpu = metagraph.read_metagraphs(tmp_path / "out")[1]
    assert tpu.batch_functions[0].allowed_batch_sizes == (1, 8)
    assert tpu.computations[0].batched_by
    records = metagraph.read_saved_model(tmp_path / "out").warm_up
    assert len(records) == 2
    outputs = answers.both(str(tmp_path / "out"), text=answers.strings("a b", "c c"))
    np.testing.assert_allclose(outputs["scores"], [[2, 3], [4, 6]])


def test_what_has_no_rows_is_not_batched(tmp_path: Path) -> None:
    class Total(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"total": tf.reduce_sum(x * x)}

    directory = models.save(Total(), tmp_path / "model")
    with pytest.raises(ExportError, match=r"shape \[\], whose first dimension need not be"):
        convert(directory, tmp_path / "out", batch_config=BatchConfig(1, 8, 0, [8]))
    assert not (tmp_path / "out").exists()


def test_words_of_all_texts_are_not_counted_as_rows(tmp_path: Path) -> None:
    directory = models.save(models.WordSums(), tmp_path / "model")
    convert(directory, tmp_path / "out")
    outputs = answers.both(str(tmp_path / "out"), text=answers.strings("a b c", "a", ""))
    np.testing.assert_allclose(outputs["sums"], [[3, 60], [1, 20], [0, 0]])


def test_numbers_of_unknown_length_are_not_batched(tmp_path: Path) -> None:
    class Lengths(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"lengths": 2 * tf.strings.length(tf.strings.split(text).values)}

    directory = models.save(Lengths(), tmp_path / "model")
    with pytest.raises(ExportError, match=r"shape \[None\], whose first dimension need"):
        convert(directory, tmp_path / "out", batch_config=BatchConfig(1, 8, 0, [8]))


def test_extra_files_are_kept(dense: Path, tmp_path: Path) -> None:
    extra = dense / "assets.extra" / "labels" / "names.txt"
    extra.parent.mkdir(parents=True)
    extra.write_text("cat")
    try:
        out = convert(dense, tmp_path / "out").out
    finally:
        extra.unlink()
    assert (out / "assets.extra" / "labels" / "names.txt").read_text() == "cat"


def test_a_loop_that_reads_a_variable_goes_to_the_tpu(tmp_path: Path) -> None:
    class Power(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(3.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            for _ in tf.range(2):
                x = x * self.w
            return {"y": x}

    directory = models.save(Power(), tmp_path / "model")
    convert(directory, tmp_path / "out", whole=True)
    outputs = answers.both(str(tmp_path / "out"), x=np.array([1, 2], np.float32))
    assert outputs["y"].tolist() == [9, 18]


def test_a_variable_is_updated_before_the_tpu_reads_it(tmp_path: Path) -> None:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            before = x * self.count
            self.count.assign_add(tf.reduce_sum(x))
            return {"before": before, "after": x * self.count}

    directory = models.save(Counter(), tmp_path / "model")
    convert(directory, tmp_path / "out")
    outputs = answers.both(str(tmp_path / "out"), x=np.array([1, 2], np.float32))
    assert outputs["before"].tolist() == [0, 0]
    assert outputs["after"].tolist() == [3, 6]


def test_an_op_that_xla_refuses_in_a_trial_stays_on_the_host(tmp_path: Path) -> None:
    class FoldedModel(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable([[2.0], [3.0]])

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 2], tf.float32, "x"),
                tf.TensorSpec([], tf.int32, "columns"),
            ]
        )
        def serve(self, x: tf.Tensor, columns: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": tf.reshape(x @ self.w, [-1, columns])}

    directory = models.save(FoldedModel(), tmp_path / "model")
    conversion = convert(directory, tmp_path / "out")
    (reshape,) = (op for op in only(conversion).host_ops if op.op == "Reshape")
    assert reshape.place == "behind"
    assert reshape.reason == "its input 1 must be a constant for XLA, and is known only in a run"
    x = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], np.float32)
    outputs = answers.both(str(tmp_path / "out"), x=x, columns=np.int32(2))
    assert outputs["y"].tolist() == [[2, 3], [5, 0]]


def test_a_module_of_jax_goes_to_the_tpu(tmp_path: Path) -> None:
    jax2tf = pytest.importorskip("jax.experimental.jax2tf")

    class Jax(tf.Module):
        serve = tf.function(
            lambda self, x: {
                "y": jax2tf.convert(
                    lambda x: x * 2 + 1,
                    polymorphic_shapes=["rows"],
                    native_serialization_platforms=["cpu", "tpu"],
                )(x)
            },
            [tf.TensorSpec([None], tf.float32, "x")],
            autograph=False,
        )

    directory = models.save(Jax(), tmp_path / "model")
    convert(directory, tmp_path / "out", whole=True)
    tpu = metagraph.read_metagraphs(tmp_path / "out")[1]
    assert "XlaCallModule" in tpu.computations[0].tpu_ops
    outputs = answers.both(str(tmp_path / "out"), x=np.array([1, 2], np.float32))
    assert outputs["y"].tolist() == [3, 5]
