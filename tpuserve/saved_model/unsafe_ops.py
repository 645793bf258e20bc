"""Ops that reach out of a model: to files, to the network, into Python.

What every SavedModel needs is none of them: the ops that save and restore variables, and those
that fill a table from a file of the model's own assets.
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
    """Refuses a metagraph that reaches out, in its graph or in any of its functions.

    Args:
      meta_graph: a MetaGraphDef message.
      directory: where it is from, for the error.

    Raises:
      UnsafeModel: it holds such ops; they are named.
    """
    found = Counter(node.op for node in _nodes(meta_graph.graph_def) if _is_unsafe(node))
    if found:
        shown = ", ".join(f"{count} {op}" for op, count in sorted(found.items()))
        raise UnsafeModel(
            f"{directory} holds ops that reach files, the network or Python: {shown}. Export the "
            f"model without them, or serve it with --forbid_unsafe_ops=false if you trust it."
        )


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _is_unsafe(node: Any) -> bool:
    if node.op.startswith(_FOREIGN_PREFIXES) or _plain(node.op) in _FORBIDDEN:
        return True
    # It can print to a file just as well.
    return node.op == "PrintV2" and node.attr["output_stream"].s not in _STREAMS


def _plain(op: str) -> str:
    """An op's name without what its versions add: "ExperimentalSqlDatasetV2" → "SqlDataset"."""
    name = op.lstrip("_").removeprefix("Experimental")
    stem, mark, version = name.rpartition("V")
    return stem if mark and version.isdigit() else name
