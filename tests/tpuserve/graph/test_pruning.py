"""A pruned metagraph serves like the whole metagraph, from a smaller graph."""

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.graph import pruning
from tpuserve.runtime import loader

v1 = tf.compat.v1


def names(meta_graph: Any) -> set[str]:
    return {node.name for node in meta_graph.graph_def.node}


def test_pruning_keeps_only_what_serving_runs(tmp_path: Path) -> None:
    path = models.export(models.half_plus_two, tmp_path, tags.SERVE) / "saved_model.pb"
    (meta_graph,) = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs
    before = names(meta_graph)
    pruning.prune_metagraph(meta_graph)
    removed = before - names(meta_graph)
    assert {"x", "half", "two", meta_graph.saver_def.restore_op_name} <= names(meta_graph)
    assert {"half/Assign", "half/Initializer/initial_value", "save/SaveV2"} <= removed
    assert set(meta_graph.collection_def) <= set(pruning._LOADER_COLLECTIONS)


def test_pruning_keeps_tables_and_their_assets(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("zero\none\ntwo\n")
    directory = tmp_path / "m" / "1"
    with tf.Graph().as_default(), v1.Session() as session:
        asset = tf.constant(str(words))
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, asset)
        table = v1.lookup.StaticHashTable(
            v1.lookup.TextFileInitializer(
                asset, tf.string, 0, tf.int64, v1.lookup.TextFileIndex.LINE_NUMBER
            ),
            -1,
        )
        x = v1.placeholder(tf.string, [None])
        info = v1.saved_model.build_tensor_info
        signature = v1.saved_model.build_signature_def(
            {"x": info(x)}, {"y": info(table.lookup(x))}, "tensorflow/serving/predict"
        )
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer(),
        )
        builder.save()
    words.unlink()
    model = loader.load(directory, hardware=TpuSystem(), forbid_unsafe_ops=True)
    keys = tf.constant(["two", "three"]).numpy()
    assert model.run("serving_default", {"x": keys})["y"].tolist() == [2, -1]
