"""A signature that changes a state which outlives its run is found from the graph."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from tpuserve.graph import state_writes
from tpuserve.saved_model.metagraph import read_metagraphs

v1 = tf.compat.v1

# The ops of TensorFlow that take a state, as a resource or as a reference, and leave it as it is,
# or whose state lasts for one run.
_READERS = re.compile(
    r"""(
    \w*(Find|Size|Export|IsClosed|NumAccumulated|NumRecordsProduced|NumWorkUnitsCompleted) |
    Ref\w+ | TwoRefsIn | DebugGradientRefIdentity | NegTrain | FakeQueue | TensorArray\w+ |
    Stack\w+ | ResourceGather(Nd)? | ReadVariable\w+ | _ReadVariablesOp | Var\w+ |
    DestroyTemporaryVariable |
    DisableCopyOnRead | Is\w+ | Barrier(Incomplete|Ready)Size | ReaderSerializeState |
    SerializeIterator | Iterator(GetDevice|GetModelProto|ToStringHandle) | MutexLock |
    MultiDeviceIteratorToStringHandle | BoostedTrees(Training)?Predict | MakeWeakResourceHandle |
    BoostedTrees(ExampleDebugOutputs|FlushQuantileSummaries|GetEnsembleStates|SerializeEnsemble) |
    BoostedTreesQuantileStreamResourceGetBucketBoundaries | \w*Dataset | Experimental\w+ |
    StatsAggregator\w+ | Resource(Create|Initialized|Using)Op | Rpc\w+ | Collective\w+ |
    TPUReshardVariables | XlaLaunch | _TPUReplicate | _XlaCompile
    )(V[2-9])?""",
    re.VERBOSE,
)


def registered_ops() -> list[Any]:
    ops = op_def_pb2.OpList()
    ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return list(ops.op)


def test_each_op_of_tensorflow_that_takes_a_state_is_a_known_reader_or_writer() -> None:
    unknown = [
        op.name
        for op in registered_ops()
        if any(argument.is_ref or argument.type == tf.resource for argument in op.input_arg)
        and not state_writes.write_kind(op.name)
        and not _READERS.fullmatch(op.name)
    ]
    assert unknown == []


@pytest.mark.parametrize(
    "op",
    [
        *("Const", "ScatterNd", "TensorScatterAdd", "RandomUniform", "TruncatedNormal", "Print"),
        *("StatelessRandomUniform", "TensorListSetItem", "SaveableNothing", "RestoreV2", "Assert"),
        *("TensorArrayWriteV3", "StackPushV2", "LookupTableFindV2", "ApproxTopK", "MapDefun"),
    ],
)
def test_an_op_without_a_lasting_effect_is_no_write(op: str) -> None:
    assert state_writes.write_kind(op) == ""


class Model(tf.Module):
    """Has a signature for each kind of state."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.n = tf.Variable(0.0)
        self.generator = tf.random.Generator.from_seed(7)
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
        self.path = str(directory / "file")

    def read(self, x: Any) -> Any:
        return x + self.n + self.table.lookup(tf.cast(x, tf.int64)) + tf.random.uniform([])

    def variable(self, x: Any) -> Any:
        return x + self.n.assign_add(1.0)

    def branch_in_a_loop(self, x: Any) -> Any:
        def body(step: Any) -> Any:
            tf.cond(step > 100, lambda: self.n.assign_add(1.0), lambda: self.n.read_value())
            return (step + 1,)

        tf.while_loop(lambda step: step < 2, body, (tf.constant(0),))
        return x

    def draw(self, x: Any) -> Any:
        return x + self.generator.uniform([])

    def insert(self, x: Any) -> Any:
        self.table.insert(tf.cast(x, tf.int64), x)
        return x

    def write(self, x: Any) -> Any:
        tf.io.write_file(self.path, "x")
        return x


def test_the_kind_of_each_signature_is_found_also_in_functions_and_control_flow(
    tmp_path: Path,
) -> None:
    model = Model(tmp_path)
    methods: list[Callable[[Any], Any]] = [model.read, model.variable, model.branch_in_a_loop]
    methods += [model.draw, model.insert, model.write]
    spec = tf.TensorSpec([None], tf.float32, "x")
    functions = {method.__name__: tf.function(method, [spec]) for method in methods}
    tf.saved_model.save(model, str(tmp_path / "model"), functions)
    (metagraph,) = read_metagraphs(tmp_path / "model")
    writes = {name: signature.write for name, signature in metagraph.signatures.items()}
    assert {name: write.kind if write else "" for name, write in writes.items()} == {
        "read": "",
        "variable": "updates a variable",
        "branch_in_a_loop": "updates a variable",
        "draw": "draws from a random generator that keeps its state",
        "insert": "changes a table",
        "write": "writes a file",
    }
    assert str(writes["insert"]).startswith("changes a table (LookupTableInsertV2, node ")


def version_1_writes(build: Callable[[Any], Any], feed: Callable[[Any], Any] | None = None) -> str:
    """Return the kind of write of a signature x → build(x) of a TensorFlow 1 graph."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], "x")
        y = build(x)
        fed = feed(graph) if feed else x
        signature = v1.saved_model.predict_signature_def({"x": fed}, {"y": y})
    graph_def = graph.as_graph_def()
    finder = state_writes.WriteFinder({})
    write = finder.in_signature(signature, {node.name: node for node in graph_def.node})
    return write.kind if write else ""


def counted(x: Any) -> Any:
    n = v1.get_variable("n", initializer=0.0, use_resource=False)
    with tf.control_dependencies([v1.assign_add(n, 1.0)]):
        return tf.identity(x, "counted")


def queued(x: Any) -> Any:
    queue = tf.queue.FIFOQueue(9, [tf.float32])
    with tf.control_dependencies([queue.enqueue(x)]):
        return tf.identity(x)


def test_initialisers_are_not_the_signatures_and_references_are_found() -> None:
    assert version_1_writes(lambda x: x + v1.get_variable("v", [], use_resource=False)) == ""
    assert version_1_writes(counted) == "updates a variable"
    assert version_1_writes(queued) == "changes a queue, an iterator or another resource"


def test_what_lies_before_a_fed_tensor_does_not_run() -> None:
    def feed(graph: Any) -> Any:
        return graph.get_tensor_by_name("counted:0")

    assert version_1_writes(lambda x: 2.0 * counted(x), feed) == ""


def test_a_variable_that_lasts_for_one_run_is_no_state() -> None:
    def build(x: Any) -> Any:
        temporary = tf.raw_ops.TemporaryVariable(shape=[], dtype=tf.float32, var_name="t")
        assigned = tf.raw_ops.AssignAdd(ref=v1.assign(temporary, 0.0), value=1.0)
        return x + tf.raw_ops.DestroyTemporaryVariable(ref=assigned, var_name="t")

    assert version_1_writes(build) == ""
