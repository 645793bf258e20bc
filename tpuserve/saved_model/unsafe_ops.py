"""Finds unsafe ops in a metagraph: ops that access files, the network or Python.

The ops that save and restore variables are not unsafe, and neither are the ops that fill a table
from an asset file of the model: most SavedModels need these ops.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuserve.errors import UnsafeModel

_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_FILES = (
    "ReadFile",
    "WriteFile",
    "MatchingFiles",
    "WholeFileReader",
    "TextLineReader",
    "TFRecordReader",
    "FixedLengthRecordReader",
    "LMDBReader",
    "TextLineDataset",
    "TFRecordDataset",
    "FixedLengthRecordDataset",
    "MatchingFilesDataset",
    "LMDBDataset",
    "SqlDataset",
    "CSVDataset",
    "CacheDataset",
    "SaveDataset",
    "LoadDataset",
    "SnapshotDataset",
    "DistributedSave",
    "DatasetToTFRecord",
    "GenerateVocabRemapping",
    "LoadAndRemapMatrix",
    "FileSystemSetConfiguration",
    "CreateSummaryFileWriter",
    "CreateSummaryDbWriter",
    "DebugIdentity",
    "DebugNanCount",
    "DebugNumericSummary",
)
_NETWORK = (
    "RPC",
    "TryRpc",
    "Rpc",
    "DataServiceDataset",
    "RegisterDataset",
    "BigQueryReader",
    "BigtableClient",
    "KafkaDataset",
    "KinesisDataset",
    "RemoteCall",
    "GcsConfigureCredentials",
    "GcsConfigureBlockCache",
    "Send",
    "Recv",
)
_FORBIDDEN = frozenset((*_PYTHON, *_FILES, *_NETWORK))
_FOREIGN_PREFIXES = ("IO>",)
_STREAMS = (b"", b"stderr", b"stdout")


def check_no_unsafe_ops(meta_graph: Any, directory: Path) -> None:
    """Check that a metagraph has no unsafe ops, in its graph or in its functions.

    Args:
      meta_graph: a MetaGraphDef message.
      directory: the directory of the SavedModel, for the error.

    Raises:
      UnsafeModel: the metagraph has unsafe ops; the message counts them by op type.
    """
    counts = Counter(node.op for node in _nodes(meta_graph.graph_def) if _is_unsafe(node))
    if counts:
        ops = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
        raise UnsafeModel(
            f"{directory} holds ops that reach files, the network or Python: {ops}. Export the "
            f"model without them, or serve it with --forbid_unsafe_ops=false if you trust it."
        )


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _is_unsafe(node: Any) -> bool:
    if node.op.startswith(_FOREIGN_PREFIXES) or _base_op(node.op) in _FORBIDDEN:
        return True
    # PrintV2 is unsafe unless it prints to standard output or standard error.
    return node.op == "PrintV2" and node.attr["output_stream"].s not in _STREAMS


def _base_op(op: str) -> str:
    """Return an op type without its version: "ExperimentalSqlDatasetV2" → "SqlDataset"."""
    name = op.lstrip("_").removeprefix("Experimental")
    stem, mark, version = name.rpartition("V")
    return stem if mark and version.isdigit() else name
