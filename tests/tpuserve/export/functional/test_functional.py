import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.export import answers
from tpuserve import tags
from tpuserve.export import BatchConfig, WarmUp, debug_info, export, inference_on_tpu, on_tpu
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1

HALF, TWO = tf.Variable(0.5, name="half"), tf.Variable(2.0, name="two")
ROWS = tf.TensorSpec([None], tf.float32)
WORDS = tf.TensorSpec([None], tf.string)


def half_plus_two(x: Any) -> Any:
    return x * HALF + TWO


def read_metagraphs(directory: str) -> dict[tags.TagSet, metagraph.Metagraph]:
    return {
        metagraph.tags: metagraph for metagraph in metagraph.read_saved_model(directory).metagraphs
    }


def size(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def export_directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    return export(half_plus_two, {"x": ROWS}, tmp_path_factory.mktemp("half"))


@pytest.mark.numeric
def test_a_function_answers_the_same_from_both_metagraphs(export_directory: str) -> None:
    answer = answers.both(export_directory, x=np.array([1, 2, 5], np.float32))
    np.testing.assert_allclose(answer["output"], [2.5, 3.0, 4.5])


def test_the_whole_function_is_on_the_tpu_and_both_have_the_same_signatures(
    export_directory: str,
) -> None:
    metagraphs = read_metagraphs(export_directory)
    (computation,) = metagraphs[tags.SERVE_TPU].computations
    assert computation.tpu_ops["Mul"] == 1
    assert metagraphs[tags.SERVE].computations == ()
    specs = [
        {alias: (spec.dtype, spec.shape) for alias, spec in side.items()}
        for one in metagraphs.values()
        for signature in one.signatures.values()
        for side in (signature.inputs, signature.outputs)
    ]
    assert specs == [{"x": ("float32", (None,))}, {"output": ("float32", (None,))}] * 2
    assert [metagraph.signatures.keys() for metagraph in metagraphs.values()] == [
        {"serving_default"}
    ] * 2


@pytest.mark.parametrize("tag_set", [tags.SERVE, tags.SERVE_TPU], ids=tags.format_tags)
def test_the_v1_loader_loads_either_metagraph(export_directory: str, tag_set: tags.TagSet) -> None:
    # Place only the ops that run: without this option, TensorFlow requires a kernel for every op of
    # the graph, and TPU ops have none here.
    config = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        loaded = v1.saved_model.loader.load(session, sorted(tag_set), export_directory)
    assert set(loaded.meta_info_def.tags) == tag_set


@pytest.mark.numeric
def test_the_v2_loader_loads_the_cpu_metagraph(export_directory: str) -> None:
    loaded = tf.saved_model.load(export_directory, tags=["serve"])
    answer = loaded.signatures["serving_default"](x=tf.constant([5.0]))
    np.testing.assert_allclose(answer["output"], [4.5])


def test_a_single_metagraph_can_be_exported(tmp_path: Path) -> None:
    cpu = export(half_plus_two, {"x": ROWS}, tmp_path, to_tpu=False)
    tpu = export(half_plus_two, {"x": ROWS}, tmp_path, to_cpu=False)
    assert list(read_metagraphs(cpu)) == [tags.SERVE]
    assert list(read_metagraphs(tpu)) == [tags.SERVE_TPU]
    assert tf.saved_model.load(cpu).signatures["serving_default"](x=tf.constant([0.0]))
    assert Path(cpu).parent == Path(tpu).parent == tmp_path


def test_variables_are_written_once(tmp_path: Path) -> None:
    weights = tf.Variable(tf.random.normal([1, 100_000]))
    arguments = (lambda x: {"y": tf.matmul(x, weights)}, {"x": tf.TensorSpec([None, 1])}, tmp_path)
    both, cpu_only = export(*arguments), export(*arguments, to_tpu=False)
    assert size(both) <= 1.05 * size(cpu_only) + metagraph.read_saved_model(both).graph_bytes


def test_variables_of_the_first_call_are_created_once(tmp_path: Path) -> None:
    class Model(tf.Module):
        weights: Any = None

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
        def __call__(self, x: Any) -> Any:
            if self.weights is None:
                self.weights = tf.Variable([[1.0], [10.0]])
            return {"y": x @ self.weights}

    directory = export(Model(), export_dir_base=tmp_path)
    assert answers.both(directory, x=np.array([[1, 2]], np.float32))["y"] == [[21.0]]


@pytest.mark.slow
@pytest.mark.numeric
def test_autograph_converts_loops_and_branches_over_tensors(tmp_path: Path) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            self.factor = tf.Variable(3.0)

        def __call__(self, x: Any, limit: Any) -> Any:
            count = 0
            while tf.reduce_max(x) < limit:
                x = x * self.factor
                count += 1
            if count > 3:
                x = -x
            return {"x": x, "count": count}

    specs = {"x": ROWS, "limit": tf.TensorSpec([], tf.float32)}
    directory = export(Model(), specs, tmp_path)
    x = np.array([1, 2], np.float32)
    answer = answers.both(directory, x=x, limit=np.float32(50))
    np.testing.assert_allclose(answer["x"], [27, 54])
    answer = answers.both(directory, x=x, limit=np.float32(99))
    np.testing.assert_allclose(answer["x"], [-81, -162])
    assert answer["count"] == 4


@pytest.mark.numeric
def test_a_loop_of_a_model_that_was_read_from_a_file_is_compiled(tmp_path: Path) -> None:
    def doubled(x: Any, times: int = 3) -> Any:
        for _ in tf.range(times):
            x = 2.0 * x
        return x

    directory = str(tmp_path / "saved")
    module = tf.Module()
    module.f = tf.function(doubled, input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    tf.saved_model.save(module, directory, signatures=module.f)
    loaded = tf.saved_model.load(directory)
    signature = loaded.signatures["serving_default"]
    exported = export(signature, {"x": ROWS}, tmp_path / "again")
    answer = answers.both(exported, x=np.array([1, 5], np.float32))
    np.testing.assert_allclose(answer["output_0"], [8.0, 40.0])


@pytest.mark.slow
def test_signatures_may_have_functions_of_their_own(tmp_path: Path) -> None:
    signatures = {
        "serving_default": {"x": ROWS},
        "sum": (lambda a, b: {"sum": a + b, "b": b}, {"a": ROWS, "b": ROWS}),
        "concrete": (tf.function(half_plus_two).get_concrete_function(x=ROWS), {"x": ROWS}),
    }
    directory = export(half_plus_two, signatures, tmp_path)
    one = np.ones([1], np.float32)
    assert answers.both(directory, x=one) == {"output": [2.5]}
    assert answers.both(directory, "sum", a=one, b=one) == {"sum": [2], "b": [1]}
    assert answers.both(directory, "concrete", x=one) == {"output": [2.5]}


def test_host_parts_stay_on_the_host(tmp_path: Path) -> None:
    def classify(x: Any) -> Any:
        best = tf.argmax(x, axis=1, output_type=tf.int32)
        return {"class": v1.tpu.outside_compilation(tf.as_string, best)}

    directory = export(classify, {"x": tf.TensorSpec([None, 3])}, tmp_path)
    answer = answers.both(directory, x=np.array([[1, 3, 2], [9, 0, 1]], np.float32))
    assert answer["class"].tolist() == [b"1", b"0"]


@pytest.mark.numeric
def test_a_batch_config_puts_a_batch_function_around_the_tpu_part(tmp_path: Path) -> None:
    directory = export(
        half_plus_two, {"x": ROWS}, tmp_path, batch_config=BatchConfig(1, 4, 0, [2, 4])
    )
    metagraphs = read_metagraphs(directory)
    (batch_function,) = metagraphs[tags.SERVE_TPU].batch_functions
    assert batch_function.allowed_batch_sizes == (2, 4)
    assert metagraphs[tags.SERVE].batch_functions == ()
    answer = answers.both(directory, x=np.array([1, 2, 5], np.float32))
    np.testing.assert_allclose(answer["output"], [2.5, 3.0, 4.5])


def with_asset(vocabulary: Path) -> Any:
    initializer = tf.lookup.TextFileInitializer(
        str(vocabulary),
        *(tf.string, tf.lookup.TextFileIndex.WHOLE_LINE),
        *(tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER),
    )
    return tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets=1)


def with_constants(vocabulary: Path) -> Any:
    words = vocabulary.read_text().split()
    initializer = tf.lookup.KeyValueTensorInitializer(words, range(len(words)), tf.string, tf.int64)
    return tf.lookup.StaticHashTable(initializer, default_value=2)


@pytest.mark.parametrize("make_table", [with_asset, with_constants])
def test_a_vocabulary_stays_on_the_host_and_is_filled_in_both_metagraphs(
    tmp_path: Path, make_table: Callable[[Path], Any]
) -> None:
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("good\nbad\n")
    table = make_table(vocabulary)
    scores = tf.Variable([1.0, -1.0, 0.0])

    def score(words: Any, use_tpu: bool = False) -> dict[str, Any]:
        ids = table.lookup(words)

        def network(ids: Any) -> Any:
            return tf.gather(scores, ids)

        if not use_tpu:
            return {"score": network(ids)}
        return {"score": inference_on_tpu(network, [ids], 1, 4, 0, [4])[0]}

    directory = export(score, {"words": WORDS}, tmp_path / "export")
    vocabulary.unlink()
    answer = answers.both(directory, words=answers.strings("bad", "good", "odd"))
    assert answer["score"].tolist() == [-1, 1, 0]
    metagraphs = read_metagraphs(directory)
    assert any("LookupTableFind" in op for op in metagraphs[tags.SERVE_TPU].host_ops)
    assert [list(metagraph.signatures) for metagraph in metagraphs.values()] == [
        ["serving_default"]
    ] * 2
    loaded = tf.saved_model.load(directory, tags=["serve"]).signatures["serving_default"]
    assert loaded(words=tf.constant(["bad"]))["score"].numpy().tolist() == [-1]


def test_a_function_that_places_itself_can_place_a_part(tmp_path: Path) -> None:
    def length(words: Any, *, use_tpu: bool) -> dict[str, Any]:
        lengths = tf.strings.length(words)
        double = on_tpu(lambda batch: batch * 2, lengths) if use_tpu else lengths * 2
        return {"double": double, "words": words}

    directory = export(length, {"words": WORDS}, tmp_path)
    answer = answers.both(directory, words=answers.strings("a", "abc"))
    assert answer["double"].tolist() == [2, 6]
    assert answer["words"].tolist() == [b"a", b"abc"]


def test_extra_files_text_and_warm_up_records_are_written(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("trained on a Monday")
    directory = Path(
        export(
            *(half_plus_two, {"x": ROWS}, tmp_path / "export"),
            batch_config=BatchConfig(1, 4, 0, [2, 4]),
            assets_extra={"notes/note.txt": str(tmp_path / "note.txt")},
            as_text=True,
            warm_up=WarmUp(),
        )
    )
    assert (directory / "saved_model.pbtxt").exists()
    assert not (directory / "saved_model.pb").exists()
    assert (directory / "assets.extra/notes/note.txt").read_text() == "trained on a Monday"
    records = tf.data.TFRecordDataset(str(directory / "assets.extra/tf_serving_warmup_requests"))
    assert len(list(records)) == 2


def test_the_export_knows_which_line_a_node_on_the_tpu_comes_from(export_directory: str) -> None:
    line = debug_info.load_line_lookup(export_directory)("mul")
    source = Path(__file__).read_text().splitlines()
    assert line
    assert source[int(line.rpartition(":")[2]) - 1].strip() == "return x * HALF + TWO"


def test_two_exports_of_one_second_get_two_versions(tmp_path: Path) -> None:
    directories = {export(half_plus_two, {"x": ROWS}, tmp_path) for _ in range(2)}
    assert {Path(directory) for directory in directories} == set(tmp_path.iterdir())
    assert len(directories) == 2


@pytest.mark.slow
def test_a_method_is_exported_with_what_its_object_owns(tmp_path: Path) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            initializer = tf.lookup.KeyValueTensorInitializer(["one"], [1.0])
            self.table = tf.lookup.StaticHashTable(initializer, default_value=0.0)

        @tf.function(input_signature=[WORDS])
        def number(self, words: Any, use_tpu: bool = False) -> Any:
            numbers = self.table.lookup(words)
            return on_tpu(self.to_eight, numbers) if use_tpu else self.to_eight(numbers)

        @tf.function
        def to_eight(self, numbers: Any) -> Any:
            for _ in tf.range(3):
                numbers += numbers
            return numbers

    model = Model()
    # Call the function before the export, as users do to try a model, so that it is traced.
    model.to_eight(tf.constant([1.0]))
    assert model.number(tf.constant(["one"])).numpy() == [8.0]
    directory = export(model.number, {"words": WORDS}, tmp_path)
    assert answers.both(directory, words=answers.strings("one", "two"))["output"].tolist() == [8, 0]
    directory = export(model.to_eight, {"numbers": ROWS}, tmp_path)
    assert answers.both(directory, numbers=np.ones([1], np.float32)) == {"output": [8]}


def test_the_text_of_an_assertion_is_no_string_on_the_tpu(tmp_path: Path) -> None:
    def positive(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > 0), ["not so", x])]):
            return x * 2.0

    directory = export(positive, {"x": tf.TensorSpec([None], tf.float32)}, tmp_path)
    x = np.array([1.0, 2.0], np.float32)
    assert answers.both(directory, x=x)["output"].tolist() == [2.0, 4.0]


def test_an_identity_in_front_of_a_host_part_goes_to_the_host(tmp_path: Path) -> None:
    def loud(x: Any, words: Any) -> Any:
        shout = v1.tpu.outside_compilation(lambda words: words + "!", tf.identity(words))
        return {"y": x * 2.0, "loud": shout}

    specs = {"x": tf.TensorSpec([None], tf.float32), "words": tf.TensorSpec([None], tf.string)}
    directory = export(loud, specs, tmp_path)
    x = np.array([1.0, 2.0], np.float32)
    answer = answers.both(directory, x=x, words=answers.strings("a", "b"))
    assert answer["loud"].tolist() == [b"a!", b"b!"]


def test_an_export_logs_nothing_that_the_user_did_not_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # AutoGraph warns about functions whose source it cannot find: two lambdas on one line, which it
    # cannot tell apart, and a lambda that is not from a file.
    namespace: dict[str, Any] = {"__name__": "theirs"}
    exec("nowhere = lambda x: x * 2.0", namespace)
    pair = (lambda x: x * 2.0, lambda x: x * 4.0)
    for function in (pair[0], namespace["nowhere"], functools.partial(pair[1])):
        export(function, {"x": tf.TensorSpec([None], tf.float32)}, tmp_path)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
