"""Finds whether a run of a graph changes a state that outlives it, such as a variable or a file."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tpuserve.graph.graph_walk import possible_calls, reach_nodes
from tpuserve.graph.references import find_tensors, node_name, tensor_name
from tpuserve.graph.traversal import find_reachable

VARIABLE = "updates a variable"
GENERATOR = "draws from a random generator that keeps its state"
TABLE = "changes a table"
QUEUE = "changes a queue, an iterator or another resource"
FILE = "writes a file"
PYTHON = "calls a Python function, which may change anything"

# What a run does → the types of the ops that do it. Ops that draw random numbers without a resource
# are not listed: the state of their kernels is no part of the model.
_RESOURCE_VARIABLE = re.compile(
    r"Assign\w*VariableOp|AssignVariableXlaConcatND|Resource(Sparse)?Apply\w+|"
    r"ResourceScatter\w+|ResourceStridedSliceAssign|ResourceCountUpTo"
)
_GENERATOR = re.compile(
    r"Rng(ReadAndSkip|Skip)\w*|"
    r"Stateful(Uniform|StandardNormal|TruncatedNormal|RandomBinomial)\w*"
)
_WRITING_OPS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (VARIABLE, _RESOURCE_VARIABLE),
    # Variables of TensorFlow 1.
    (
        VARIABLE,
        re.compile(
            r"Assign(Add|Sub)?|(Sparse)?Apply\w+|Scatter(Add|Div|Max|Min|Mul|Sub|Update)|"
            r"ScatterNd(Add|Max|Min|Sub|Update)|StridedSliceAssign|CountUpTo|SdcaShrinkL1"
        ),
    ),
    (GENERATOR, _GENERATOR),
    (TABLE, re.compile(r"LookupTable(Insert|Import|Remove)\w*|InitializeTable\w*")),
    (
        QUEUE,
        re.compile(
            r"Queue(Enqueue|Dequeue|Close)\w*|Barrier(Close|InsertMany|TakeMany)|"
            r"\w*Accumulator(ApplyGradient|TakeGradient|SetGlobalStep)|"
            r"(Ordered)?(Map)?(Stage|Unstage|UnstageNoKey|Clear)|StageClear|"
            r"IteratorGetNext\w*|MakeIterator|DeserializeIterator|"
            r"MultiDeviceIterator(Init|GetNext\w*)|Reader(Read|Reset|RestoreState)\w*|"
            r"Add(Many)?SparseToTensorsMap|TakeManySparseFromTensorsMap|DestroyResourceOp|"
            r"Delete\w+|BoostedTrees(CenterBias|Create\w+|Deserialize\w+|UpdateEnsemble\w*)|"
            r"BoostedTreesQuantileStreamResource(AddSummaries|Deserialize|Flush)"
        ),
    ),
    (
        FILE,
        re.compile(
            r"WriteFile|Save|Save(Slices|V2|Dataset\w*)|MergeV2Checkpoints|DistributedSave|"
            r"(Experimental)?DatasetToTFRecord|DumpTensor|CalibrationStatisticsSaver|ImportEvent|"
            r"Write\w*Summary|CreateSummary\w+|FlushSummaryWriter|CloseSummaryWriter"
        ),
    ),
    (PYTHON, re.compile("PyFunc|EagerPyFunc")),
)
# The ops whose resource lasts for one run only, so that a change of it is no write.
_TEMPORARY = re.compile(r"Anonymous\w+|TemporaryVariable")
_FORWARDING = ("Identity", "RefIdentity")


@dataclass(frozen=True)
class Write:
    """A node by which a run changes a state that outlives the run.

    Attributes:
      kind: what the node does, such as `VARIABLE`.
    """

    kind: str
    op: str
    node: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.op}, node {self.node})"


class WriteFinder:
    """Answers for the signatures, nodes and functions of a graph whether a run of them writes."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._writes: dict[str, Write | None] = {}
        self._calls: dict[str, set[str]] = {}

    def in_signature(self, signature_def: Any, nodes: Mapping[str, Any]) -> Write | None:
        """Return a write of a run of a signature; None if a run only reads.

        Args:
          nodes: node name → NodeDef of the main graph.
        """
        fetches, feeds = (
            [tensor for info in infos.values() for tensor in find_tensors(info)]
            for infos in (signature_def.outputs, signature_def.inputs)
        )
        reached = reach_nodes(nodes, fetches, frozenset(map(tensor_name, feeds)))
        return self.in_nodes([nodes[name] for name in reached])

    def in_nodes(self, nodes: Iterable[Any]) -> Write | None:
        """Return a write of NodeDefs, or of the functions that they call; None if they only read.

        All nodes of a called function count, because stateful ones run even without a consumer.
        """
        nodes = list(nodes)
        write = _first_write(nodes)
        if write is not None or not self._functions:
            return write
        called = find_reachable(possible_calls(nodes), self._enter)
        return next(filter(None, (self._writes[name] for name in sorted(called))), None)

    def _enter(self, name: str) -> set[str] | None:
        if name not in self._functions:
            return None
        if name not in self._calls:
            body = self._functions[name].node_def
            self._writes[name], self._calls[name] = _first_write(body), possible_calls(body)
        return self._calls[name]


def _first_write(nodes: Iterable[Any]) -> Write | None:
    nodes = list(nodes)
    writing = [node for node in nodes if write_kind(node.op)]
    if not writing:
        return None
    by_name = {node.name: node for node in nodes}
    for node in writing:
        if not _TEMPORARY.fullmatch(_resource(node, by_name).op):
            return Write(write_kind(node.op), node.op, node.name)
    return None


@cache
def write_kind(op: str) -> str:
    """Return what an op of a type changes, such as `VARIABLE`; "" if it changes nothing."""
    return next((kind for kind, ops in _WRITING_OPS if ops.fullmatch(op)), "")


def updates_resource_variable(op: str) -> bool:
    """Return whether an op of a type updates a resource variable, as generators' states are."""
    return bool(_RESOURCE_VARIABLE.fullmatch(op) or _GENERATOR.fullmatch(op))


def _resource(node: Any, by_name: Mapping[str, Any]) -> Any:
    """Return the node that creates what a node writes to; the last one known if there is none."""
    # A damaged graph may have a cycle.
    for _ in by_name:
        position = 1 if node.op == "MakeIterator" else 0
        producer = by_name.get(node_name(node.input[position])) if node.input else None
        if producer is None or not (write_kind(node.op) or node.op in _FORWARDING):
            return node
        node = producer
    return node
