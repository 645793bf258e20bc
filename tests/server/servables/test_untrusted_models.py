"""Models of an attacker are refused before any of their ops run; ordinary models are served."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from server.config.settings import Settings
from server.servables.saved_model_loader import SavedModelLoader
from tests import models
from tpuserve import tags
from tpuserve.errors import Code, CodedError, ModelTooLarge, TpuserveError, UnsafeModel

v1 = tf.compat.v1
ONE = {"x": np.float32(1)}
TRUSTED = {"forbid_unsafe_ops": False}


def load_model(directory: Path, **flags: Any) -> Any:
    return SavedModelLoader(Settings(directory.parent, **flags))(directory)


def export(
    directory: Path,
    build: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
    init: Callable[[], Any] = lambda: None,
) -> Path:
    """Export a TensorFlow 1 graph: `build` returns inputs and outputs, `init` an op of the load."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        inputs, outputs = build()
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": v1.saved_model.predict_signature_def(inputs, outputs)},
            assets_collection=graph.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=init(),
        )
        builder.save()
    return directory


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return the directory of another user's model."""
    return models.export(models.half_plus_two, tmp_path / "victim", tags.SERVE)


def test_signature_that_saves_to_a_path_of_the_client_is_refused(tmp_path: Path) -> None:
    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        variable = v1.get_variable("v", initializer=1.0)
        saver = v1.train.Saver([variable])
        graph = v1.get_default_graph()
        prefix = graph.get_tensor_by_name(saver.saver_def.filename_tensor_name)
        saved = graph.get_tensor_by_name(saver.saver_def.save_tensor_name)
        return {"prefix": prefix}, {"y": tf.identity(saved)}

    directory = export(tmp_path / "saves" / "1", build)
    target = tmp_path / "written"
    load_model(directory, **TRUSTED).run(
        "serving_default", {"prefix": np.array(str(target), object)}
    )
    assert list(tmp_path.glob("written*"))
    text = (
        r"compute during a request: node save/SaveV2 \(SaveV2\) is for saving checkpoints\. Export"
    )
    with pytest.raises(UnsafeModel, match=text):
        load_model(directory)


def test_table_of_a_constant_path_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("root\ndaemon\n")

    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.int64, [None], "x")
        names = v1.get_default_graph().get_collection_ref(v1.GraphKeys.ASSET_FILEPATHS)
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(secret),
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
            ),
            "none",
        )
        del names[:]
        return {"x": x}, {"y": table.lookup(x)}

    directory = export(tmp_path / "table" / "1", build, init=v1.tables_initializer)
    line = {"x": np.array([1])}
    assert load_model(directory, **TRUSTED).run("serving_default", line)["y"].tolist() == [
        b"daemon"
    ]
    text = r"during the initialisation: the path of node .*InitializeTableFromTextFileV2\) is no"
    with pytest.raises(UnsafeModel, match=text):
        load_model(directory)


def test_checkpoint_of_another_model_is_not_restored(tmp_path: Path, victim: Path) -> None:
    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        prefix = v1.placeholder(tf.string, [], "prefix")
        (value,) = tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=["two"], shape_and_slices=[""], dtypes=[tf.float32]
        )
        return {"prefix": prefix}, {"y": value}

    directory = export(tmp_path / "thief" / "1", build)
    prefix = {"prefix": np.array(str(victim / "variables" / "variables"), object)}
    assert load_model(directory, **TRUSTED).run("serving_default", prefix)["y"] == 2
    with pytest.raises(UnsafeModel, match=r"during a request: the path of node RestoreV2"):
        load_model(directory)


def test_asset_that_the_graph_names_elsewhere_is_read_from_the_model(tmp_path: Path) -> None:
    """A request reads the model's own asset, not the path in the graph's constant."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")

    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        path = tf.constant(str(secret), name="path")
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
        x = v1.placeholder(tf.string, [], "x")
        return {"x": x}, {"y": tf.strings.join([x, tf.io.read_file(path)])}

    directory = export(tmp_path / "m" / "1", build)
    (directory / "assets" / "secret.txt").write_text("own")
    assert load_model(directory).run("serving_default", {"x": np.array(b"", object)})["y"] == b"own"


class Vocabulary(tf.Module):
    """A model of TensorFlow 2 with a table from an asset, strings, a regex and a loop."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                str(path),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            num_oov_buckets=1,
        )
        self.weights = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def __call__(self, text: Any) -> dict[str, Any]:
        words = tf.strings.regex_replace(tf.strings.lower(text), "[^a-z]", "")
        ids = self.table.lookup(words)
        total = tf.zeros([tf.size(ids)])
        for _ in tf.range(2):
            total += tf.gather(self.weights, ids)
        return {"y": total}


def test_vocabulary_of_tensorflow_2_is_served(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n")
    directory = tmp_path / "m" / "1"
    module = Vocabulary(words)
    tf.saved_model.save(module, str(directory), signatures=module.__call__)
    words.unlink()
    result = load_model(directory).run(
        "serving_default", {"text": np.array([b"Two!", b"x"], object)}
    )
    assert result["y"].tolist() == [4, 6]


@pytest.mark.slow
def test_keras_model_with_preprocessing_and_recurrence_is_served(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n")
    keras = tf.keras
    text = keras.Input([1], dtype=tf.string, name="text")
    ids = keras.layers.StringLookup(vocabulary=str(words))(text)
    hidden = keras.layers.LSTM(2)(keras.layers.Embedding(3, 2)(ids))
    model = keras.Model(text, keras.layers.Dense(1)(hidden))
    directory = tmp_path / "m" / "1"
    model.export(str(directory))
    words.unlink()
    loaded = load_model(directory)
    inputs = {name: np.array([[b"two"]], object) for name in loaded.signatures["serve"].inputs}
    assert [*loaded.run("serve", inputs).values()][0].shape == (1, 1)


def test_no_model_is_refused_after_it_ran(tmp_path: Path) -> None:
    """The load runs the initialisation op, so an unsafe model is refused before."""
    target = tmp_path / "written"

    class Writer(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "x")])
        def __call__(self, x: Any) -> dict[str, Any]:
            tf.io.write_file(str(target), "x")
            return {"y": x}

    module = Writer()
    directory = tmp_path / "m" / "1"
    tf.saved_model.save(module, str(directory), signatures=module.__call__)
    with pytest.raises(TpuserveError, match=r"1 WriteFile \(files\)"):
        load_model(directory)
    assert not target.exists()


def test_constant_of_a_few_bytes_that_inflates_to_gigabytes_is_refused(tmp_path: Path) -> None:
    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [], "x")
        return {"x": x}, {"y": x + tf.reduce_sum(tf.constant(0.5, shape=[1024]))}

    directory = export(tmp_path / "m" / "1", build)
    assert load_model(directory, max_constant_bytes=4096).run("serving_default", ONE)["y"] == 513
    file = directory / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for node in proto.meta_graphs[0].graph_def.node:
        node.attr.pop("_output_shapes", None)
        if node.op == "Const" and node.attr["dtype"].type == 1:
            node.attr["value"].tensor.tensor_shape.dim[0].size = 2_250_000_000
    file.write_bytes(proto.SerializeToString())
    assert file.stat().st_size < 4096
    text = r"asks for 8,999,999,\d+ bytes of constants, of which node Const \(Const"
    with pytest.raises(ModelTooLarge, match=text):
        load_model(directory)


def test_graph_that_allocates_by_a_number_in_the_file_is_refused(tmp_path: Path) -> None:
    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [], "x")
        return {"x": x}, {"y": x + tf.reduce_sum(tf.fill([1 << 16], 1.0))}

    directory = export(tmp_path / "m" / "1", build)
    assert load_model(directory).run("serving_default", ONE)["y"] == 65537
    with pytest.raises(ModelTooLarge, match=r"node Fill \(Fill\) asks for 262,1"):
        load_model(directory, max_constant_bytes=1 << 17)
    assert load_model(directory, max_constant_bytes=0).run("serving_default", ONE)["y"] == 65537


@pytest.mark.slow
def test_initialisation_that_never_ends_is_stopped(tmp_path: Path) -> None:
    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [], "x")
        return {"x": x}, {"y": x + 1}

    def init() -> Any:
        # The loop never ends: twice zero stays zero, and never exceeds one.
        return v1.while_loop(lambda i: i <= 1, lambda i: i * 2, [tf.constant(0.0)]).op

    directory = export(tmp_path / "m" / "1", build, init)
    with pytest.raises(
        CodedError,
        match=r"of .*/m/1 has not ended in 0\.5 s\. Export",
        check=lambda error: error.code is Code.DEADLINE_EXCEEDED,
    ):
        load_model(directory, load_timeout_seconds=0.5)


def test_initialisation_that_ends_in_time_is_not_stopped(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path / "m", tags.SERVE)
    loaded = load_model(directory, load_timeout_seconds=60)
    assert loaded.run("serving_default", ONE)["y"] == 2.5


def test_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    """TensorFlow itself would crash with a stack overflow."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "x")])
        def __call__(self, x: Any) -> dict[str, Any]:
            return {"y": self.inner(x)}

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "x")])
        def inner(self, x: Any) -> Any:
            return self.innermost(x)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "x")])
        def innermost(self, x: Any) -> Any:
            return x + 1

    module = Module()
    directory = tmp_path / "m" / "1"
    tf.saved_model.save(module, str(directory), signatures=module.__call__)
    file = directory / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for function in proto.meta_graphs[0].graph_def.library.function:
        if "__inference_inner_" in function.signature.name:
            for node in function.node_def:
                if "f" in node.attr:
                    node.attr["f"].func.name = function.signature.name
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelTooLarge, match="function __inference_inner_.* calls itself"):
        load_model(directory)
