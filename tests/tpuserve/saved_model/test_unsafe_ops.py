"""Ops that access files, the network or Python are found in graphs and functions."""

from pathlib import Path

import pytest

from tpuserve.errors import UnsafeModel
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import unsafe_ops

PLACE = Path("/models/half/3")


def graph_of(*ops: str) -> pb.MetaGraphDef:
    meta_graph = pb.MetaGraphDef()
    for position, op in enumerate(ops):
        meta_graph.graph_def.node.add(name=f"n{position}", op=op)
    return meta_graph


def test_ops_that_every_saved_model_needs_are_accepted() -> None:
    needed = (
        "RestoreV2",
        "SaveV2",
        "ShardedFilename",
        "MergeV2Checkpoints",
        "InitializeTableFromTextFileV2",
        "HashTableV2",
        "MatMul",
        "ParseExampleV2",
        "PrintV2",
    )
    unsafe_ops.check_no_unsafe_ops(graph_of(*needed), PLACE)


@pytest.mark.parametrize(
    "op",
    [
        "ReadFile",
        "WriteFile",
        "MatchingFiles",
        "PyFunc",
        "EagerPyFunc",
        "PyFuncStateless",
        "TFRecordDatasetV2",
        "ExperimentalSqlDataset",
        "DataServiceDatasetV4",
        "TextLineReaderV2",
        "DebugIdentityV3",
        "IO>AnythingAtAll",
        "_Send",
    ],
)
def test_unsafe_op_is_refused_with_its_name(op: str) -> None:
    with pytest.raises(UnsafeModel, match=f"Python: 1 {op}. Export the model without"):
        unsafe_ops.check_no_unsafe_ops(graph_of("MatMul", op), PLACE)


def test_op_in_a_function_is_found_and_all_are_counted() -> None:
    meta_graph = graph_of("ReadFile", "ReadFile")
    function = meta_graph.graph_def.library.function.add()
    function.node_def.add(name="hidden", op="EagerPyFunc")
    with pytest.raises(UnsafeModel, match="Python: 1 EagerPyFunc, 2 ReadFile"):
        unsafe_ops.check_no_unsafe_ops(meta_graph, PLACE)


def test_print_to_a_file_is_refused() -> None:
    meta_graph = graph_of("PrintV2")
    meta_graph.graph_def.node[0].attr["output_stream"].s = b"file:///etc/motd"
    with pytest.raises(UnsafeModel, match="1 PrintV2"):
        unsafe_ops.check_no_unsafe_ops(meta_graph, PLACE)
