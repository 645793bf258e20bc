"""Ops that may do more than compute are found in graphs and functions."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tpuserve.errors import UnsafeModel, UnsupportedModel
from tpuserve.saved_model.op_packages import ImportedOps
from tpuserve.untrusted.model_check import check_model

check_only_computes = partial(check_model, forbid_unsafe_ops=True, max_constant_bytes=0)

PLACE = Path("/models/half/3")


def graph_of(*ops: str) -> meta_graph_pb2.MetaGraphDef:
    meta_graph = meta_graph_pb2.MetaGraphDef()
    for position, op in enumerate(ops):
        meta_graph.graph_def.node.add(name=f"n{position}", op=op)
    return meta_graph


def add_signature(meta_graph: meta_graph_pb2.MetaGraphDef, fetch: str, feed: str = "x:0") -> None:
    signature = meta_graph.signature_def["serve"]
    signature.inputs["x"].name = feed
    signature.outputs["y"].name = fetch


def add_asset(
    meta_graph: meta_graph_pb2.MetaGraphDef, name: str, filename: str = "words.txt"
) -> Any:
    node = meta_graph.graph_def.node.add(name=name, op="Const")
    node.attr["dtype"].type = 7
    node.attr["value"].tensor.string_val.append(b"/etc/passwd")
    meta_graph.asset_file_def.add(filename=filename).tensor_info.name = f"{name}:0"
    return node


def add_function(
    meta_graph: meta_graph_pb2.MetaGraphDef, name: str, **nodes: list[str]
) -> function_pb2.FunctionDef:
    """Add a function with the arguments a and b; `nodes` has name=[op, *inputs]."""
    function = meta_graph.graph_def.library.function.add()
    function.signature.name = name
    for argument in ("a", "b"):
        function.signature.input_arg.add(name=argument)
    for node, (op, *inputs) in nodes.items():
        function.node_def.add(name=node, op=op, input=inputs)
    return function


def call(
    meta_graph: meta_graph_pb2.MetaGraphDef, name: str, op: str, function: str, *inputs: str
) -> None:
    node = meta_graph.graph_def.node.add(name=name, op=op, input=inputs)
    node.attr["f"].func.name = function


def test_ops_that_every_saved_model_needs_are_accepted() -> None:
    needed = (
        *("RestoreV2", "SaveV2", "ShardedFilename", "MergeV2Checkpoints", "HashTableV2"),
        *("InitializeTableFromTextFileV2", "MatMul", "ParseExampleV2", "PrintV2", "ScalarSummary"),
    )
    check_only_computes([graph_of(*needed)], PLACE)


@pytest.mark.parametrize(
    ("op", "family"),
    [
        ("WriteFile", "files"),
        ("MatchingFiles", "files"),
        ("PyFunc", "Python"),
        ("EagerPyFunc", "Python"),
        ("CSVDatasetV2", "files of datasets"),
        ("ExperimentalSqlDataset", "files of datasets"),
        ("DataServiceDatasetV4", "network"),
        ("RpcCall", "network"),
        ("ImmutableConst", "files"),
        ("Skipgram", "files"),
        ("DebugIdentityV3", "debugging"),
        ("Abort", "debugging"),
        ("CreateSummaryFileWriter", "summary writers"),
        ("XlaCustomCallV2", "programs in attributes and tensors"),
        ("DatasetFromGraph", "programs in attributes and tensors"),
        ("CollectiveReduceV2", "collective"),
        ("_Send", "transfer between devices and processes"),
    ],
)
def test_op_that_may_do_more_than_compute_is_refused(op: str, family: str) -> None:
    text = rf"compute only: 1 {op} \({family}\). Export the model without"
    with pytest.raises(UnsafeModel, match=text):
        check_only_computes([graph_of("MatMul", op)], PLACE)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("IO>Anything", "IO>Anything is of tensorflow-io: install its version for this TensorFlow"),
        ("TFText>Later", "TFText>Later is of tensorflow-text: import it with --import_ops=tensor"),
        ("MatMulV9", "another package, or of a later TensorFlow: 1 MatMulV9. Name the package"),
    ],
)
def test_op_of_another_package_is_told_as_that(op: str, text: str) -> None:
    with pytest.raises(UnsupportedModel, match=text):
        check_only_computes([graph_of("WriteFile", op)], PLACE)


def test_ops_that_the_user_has_named_are_accepted() -> None:
    ops = ("MyOp", "FastWordpieceTokenizeWithOffsets")
    check_only_computes([graph_of(*ops)], PLACE, imported_ops=ImportedOps(named=frozenset(ops)))


def test_op_of_tensorflow_text_that_trusts_its_table_asks_for_its_name() -> None:
    check_only_computes([graph_of("WordpieceTokenizeWithOffsets", "SentencepieceOp")], PLACE)
    with pytest.raises(UnsafeModel, match="or name tensorflow_text with --import_ops if you trust"):
        check_only_computes([graph_of("FastWordpieceTokenizeWithOffsets")], PLACE)


def test_ops_of_functions_and_of_both_metagraphs_count() -> None:
    meta_graph = graph_of("WriteFile", "WriteFile")
    add_function(meta_graph, "hidden", inner=["EagerPyFunc"])
    text = r"compute only: 1 EagerPyFunc \(Python\), 3 WriteFile \(files\)"
    with pytest.raises(UnsafeModel, match=text):
        check_only_computes([meta_graph, graph_of("MatMul", "WriteFile")], PLACE)


@pytest.mark.parametrize(
    ("op", "attribute", "safe", "unsafe"),
    [
        ("PrintV2", "output_stream", b"stdout", b"file:///etc/motd"),
        ("FixedUnigramCandidateSampler", "vocab_file", b"", b"/etc/passwd"),
        ("DecodeProtoV2", "descriptor_source", b"local://", b"/etc/passwd"),
        ("EncodeProto", "descriptor_source", b"bytes://abc", b"/etc/passwd"),
        ("XlaCallModule", "module", b"ML\xefR...add_v1", b"ML\xefR...custom_call_v1"),
        ("XlaCallModule", "module", b"ML\xefR...add_v1", b"module { stablehlo.custom\\5fcall }"),
    ],
)
def test_attribute_that_reaches_files_or_native_code_is_refused(
    op: str, attribute: str, safe: bytes, unsafe: bytes
) -> None:
    meta_graph = graph_of(op)
    node = meta_graph.graph_def.node[0]
    check_only_computes([meta_graph], PLACE)
    node.attr[attribute].s = safe
    check_only_computes([meta_graph], PLACE)
    node.attr[attribute].s = unsafe
    with pytest.raises(UnsafeModel, match=rf"1 {op} \({attribute}\)"):
        check_only_computes([meta_graph], PLACE)
    # A placeholder is refused too: the caller of the function sets its value.
    node.attr[attribute].placeholder = "anything"
    with pytest.raises(UnsafeModel, match=rf"1 {op} \({attribute}\)"):
        check_only_computes([meta_graph], PLACE)


def test_op_may_not_start_threads_without_a_bound() -> None:
    meta_graph = graph_of("BatchFunction")
    threads = meta_graph.graph_def.node[0].attr["num_batch_threads"]
    threads.i = 64
    check_only_computes([meta_graph], PLACE)
    threads.i = 1_000_000
    with pytest.raises(UnsafeModel, match=r"1 BatchFunction \(num_batch_threads\)"):
        check_only_computes([meta_graph], PLACE)


def test_request_may_read_an_asset_and_no_other_constant() -> None:
    meta_graph = graph_of()
    add_asset(meta_graph, "asset")
    meta_graph.graph_def.node.add(name="same", op="Identity", input=["asset"])
    meta_graph.graph_def.node.add(name="read", op="ReadFile", input=["same"])
    add_signature(meta_graph, "read:0")
    check_only_computes([meta_graph], PLACE)
    meta_graph.asset_file_def[0].tensor_info.name = "other:0"
    with pytest.raises(UnsafeModel, match=r"during a request: the path of node read \(ReadFile\)"):
        check_only_computes([meta_graph], PLACE)


@pytest.mark.parametrize("feed", ["asset:0", "same:0"])
def test_client_may_not_feed_the_path_of_an_asset(feed: str) -> None:
    meta_graph = graph_of()
    add_asset(meta_graph, "asset")
    meta_graph.graph_def.node.add(name="same", op="Identity", input=["asset"])
    meta_graph.graph_def.node.add(name="read", op="ReadFile", input=["same"])
    add_signature(meta_graph, "read:0", feed=feed)
    with pytest.raises(UnsafeModel, match="during a request: the path of node read"):
        check_only_computes([meta_graph], PLACE)


@pytest.mark.parametrize("fetch", ["save:0", "after:0"])
def test_request_that_saves_is_refused_also_by_a_control_edge(fetch: str) -> None:
    meta_graph = graph_of("Placeholder")
    meta_graph.graph_def.node.add(name="save", op="SaveV2", input=["n0"])
    meta_graph.graph_def.node.add(name="after", op="Identity", input=["n0", "^save"])
    check_only_computes([meta_graph], PLACE)
    add_signature(meta_graph, fetch)
    with pytest.raises(
        UnsafeModel, match=r"more than compute during a request: node save \(SaveV2\)"
    ):
        check_only_computes([meta_graph], PLACE)


def test_tpu_system_may_be_held_and_not_be_shut_down() -> None:
    meta_graph = graph_of("ShutdownDistributedTPU")
    check_only_computes([meta_graph], PLACE)
    add_signature(meta_graph, "n0:0")
    with pytest.raises(UnsafeModel, match="is for the TPU system, which all models share"):
        check_only_computes([meta_graph], PLACE)


def test_restore_reads_the_variables_and_no_constant_path() -> None:
    meta_graph = graph_of("Placeholder", "Const")
    restore = meta_graph.graph_def.node.add(name="restore", op="RestoreV2", input=["n0"])
    meta_graph.saver_def.filename_tensor_name = "n0:0"
    meta_graph.saver_def.restore_op_name = "restore"
    check_only_computes([meta_graph], PLACE)
    restore.input[0] = "n1"
    with pytest.raises(UnsafeModel, match="during the restore of the variables"):
        check_only_computes([meta_graph], PLACE)


def test_request_may_not_restore_even_from_the_tensor_of_the_restore() -> None:
    meta_graph = graph_of("Placeholder")
    meta_graph.graph_def.node.add(name="restore", op="RestoreV2", input=["n0"])
    meta_graph.saver_def.filename_tensor_name = "n0:0"
    meta_graph.saver_def.restore_op_name = "restore"
    add_signature(meta_graph, "restore:0", feed="n0:0")
    with pytest.raises(UnsafeModel, match="during a request"):
        check_only_computes([meta_graph], PLACE)


def test_path_is_followed_into_functions() -> None:
    meta_graph = graph_of("Placeholder", "Const")
    add_asset(meta_graph, "asset")
    add_function(meta_graph, "inner", read=["ReadFile", "b"])
    outer = add_function(meta_graph, "outer", call=["PartitionedCall", "b", "same:output:0"])
    outer.node_def.add(name="same", op="Identity", input=["a"])
    outer.node_def[0].attr["f"].func.name = "inner"
    call(meta_graph, "call", "StatefulPartitionedCall", "outer", "asset", "n1")
    meta_graph.collection_def["legacy_init_op"].node_list.value.append("call")
    check_only_computes([meta_graph], PLACE)
    # A second call of the function passes a path that is no asset.
    call(meta_graph, "again", "If", "outer", "n0", "n1", "n1")
    meta_graph.graph_def.node.add(name="init", op="NoOp", input=["^call", "^again"])
    meta_graph.collection_def["legacy_init_op"].node_list.value[:] = ["init"]
    text = r"during the initialisation: the path of node read \(ReadFile\) in function inner"
    with pytest.raises(UnsafeModel, match=text):
        check_only_computes([meta_graph], PLACE)


@pytest.mark.parametrize("op", ["While", "BatchFunction"])
def test_op_whose_function_gets_also_other_tensors_may_not_pass_a_path(op: str) -> None:
    meta_graph = graph_of()
    add_asset(meta_graph, "asset")
    add_function(meta_graph, "body", read=["ReadFile", "a"])
    call(meta_graph, "call", op, "body", "asset", "asset")
    add_signature(meta_graph, "call:0")
    with pytest.raises(UnsafeModel, match="node read"):
        check_only_computes([meta_graph], PLACE)


def test_function_that_an_optimiser_may_call_instead_counts() -> None:
    meta_graph = graph_of("Placeholder")
    called = add_function(meta_graph, "called")
    other = add_function(meta_graph, "other", save=["SaveV2", "a"])
    for function in (called, other):
        function.attr["api_implements"].s = b"lstm"
    call(meta_graph, "call", "PartitionedCall", "called", "n0")
    add_signature(meta_graph, "call:0")
    with pytest.raises(UnsafeModel, match=r"node save \(SaveV2\) in function other"):
        check_only_computes([meta_graph], PLACE)


def test_fed_tensor_cuts_the_graph_in_the_runs_that_feed_it() -> None:
    meta_graph = graph_of("Const")
    meta_graph.graph_def.node.add(name="read", op="ReadFile", input=["n0"])
    meta_graph.graph_def.node.add(name="y", op="Identity", input=["read"])
    add_signature(meta_graph, "y:0", feed="read:0")
    check_only_computes([meta_graph], PLACE)
    other = meta_graph.signature_def["other"]
    other.outputs["y"].name = "y:0"
    with pytest.raises(UnsafeModel, match="node read"):
        check_only_computes([meta_graph], PLACE)


def variable_of_a_path(value: str) -> meta_graph_pb2.MetaGraphDef:
    """Return a metagraph whose initialisation assigns a path to a variable, from node `value`.

    A request opens the file at that path.
    """
    meta_graph = graph_of("Const", "Placeholder")
    add_asset(meta_graph, "asset")
    nodes = meta_graph.graph_def.node
    nodes.add(name="variable", op="VarHandleOp").attr["shared_name"].s = b"path"
    assign = nodes.add(name="assign", op="AssignVariableOp", input=["variable", value])
    assign.attr["dtype"].type = 7
    nodes.add(name="value", op="ReadVariableOp", input=["variable"])
    nodes.add(name="read", op="ReadFile", input=["value"])
    meta_graph.collection_def["legacy_init_op"].node_list.value.append("assign")
    add_signature(meta_graph, "read:0")
    return meta_graph


def test_path_may_stand_in_a_variable() -> None:
    check_only_computes([variable_of_a_path("asset")], PLACE)
    for other in ("n0", "n1"):
        with pytest.raises(UnsafeModel, match="node read"):
            check_only_computes([variable_of_a_path(other)], PLACE)


def test_variable_with_a_path_may_not_be_assigned_another_value() -> None:
    meta_graph = variable_of_a_path("asset")
    nodes = meta_graph.graph_def.node
    other = nodes.add(name="other", op="VarHandleOp")
    other.attr["shared_name"].s = b"path"
    add_function(meta_graph, "write", write=["AssignVariableOp", "a", "b"])
    (function,) = meta_graph.graph_def.library.function
    function.node_def[0].attr["dtype"].type = 7
    call(meta_graph, "call", "StatefulPartitionedCall", "write", "other", "n1")
    check_only_computes([meta_graph], PLACE)
    add_signature(meta_graph, "call:0")
    meta_graph.signature_def["second"].outputs["y"].name = "read:0"
    with pytest.raises(UnsafeModel, match="node read"):
        check_only_computes([meta_graph], PLACE)
    other.attr["shared_name"].s = b"another"
    check_only_computes([meta_graph], PLACE)


def test_variable_with_a_path_may_not_be_fed_or_restored() -> None:
    meta_graph = variable_of_a_path("asset")
    add_signature(meta_graph, "read:0", feed="value:0")
    with pytest.raises(UnsafeModel, match="node read"):
        check_only_computes([meta_graph], PLACE)
    meta_graph = variable_of_a_path("asset")
    nodes = meta_graph.graph_def.node
    nodes.add(name="restore", op="RestoreV2", input=["n1"])
    write = nodes.add(name="write", op="AssignVariableOp", input=["variable", "restore"])
    write.attr["dtype"].type = 7
    meta_graph.saver_def.filename_tensor_name = "n1:0"
    meta_graph.saver_def.restore_op_name = "write"
    with pytest.raises(UnsafeModel, match="node read"):
        check_only_computes([meta_graph], PLACE)


def test_variables_that_are_assigned_one_another_need_a_path() -> None:
    meta_graph = variable_of_a_path("value2")
    nodes = meta_graph.graph_def.node
    nodes.add(name="variable2", op="VarHandleOp")
    nodes.add(name="value2", op="ReadVariableOp", input=["variable2"])
    for position, value in enumerate(("value", "n1")):
        write = nodes.add(name=f"write{position}", op="AssignVariableOp")
        write.input[:] = ["variable2", value]
        write.attr["dtype"].type = 7
    nodes.add(name="init", op="NoOp", input=["^assign", "^write0"])
    init = meta_graph.collection_def["legacy_init_op"].node_list.value
    init[:] = ["init"]
    check_only_computes([meta_graph], PLACE)
    nodes.add(name="all", op="NoOp", input=["^init", "^write1"])
    init[:] = ["all"]
    with pytest.raises(UnsafeModel, match="node read"):
        check_only_computes([meta_graph], PLACE)
