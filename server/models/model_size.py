"""Estimates the memory that a version needs when it is loaded."""

import os
from pathlib import Path

from tpuserve.errors import TpuserveError

# What a loaded model needs besides its variables and constants, in bytes: measured with
# TensorFlow's sessions on a CPU, whose graphs of small ops have 7 kB for each node.
_BYTES_PER_MODEL = 500_000
_BYTES_PER_NODE = 8_000
# The largest saved_model.pb whose nodes are counted, in bytes. Larger files have large constants,
# beside which the nodes count little.
_MAX_COUNTED_BYTES = 16 << 20


def estimate_bytes(directory: Path | None) -> int:
    """Return about how much memory a version needs, in bytes; 0 before it is downloaded.

    The memory is that of the version's files, and that of the nodes of its graph.
    """
    if directory is None or not directory.is_dir():
        return 0
    total = _BYTES_PER_MODEL + _BYTES_PER_NODE * _count_nodes(directory)
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue  # The file was removed while the directory was read.
    return total


def _count_nodes(directory: Path) -> int:
    """Return the number of nodes of the largest metagraph; 0 if the file is large or damaged."""
    from tpuserve.saved_model import proto_file

    try:
        path = proto_file.find_saved_model_file(directory)
        if path.stat().st_size > _MAX_COUNTED_BYTES:
            return 0
        metagraphs = proto_file.parse_saved_model_file(path).meta_graphs
    except (OSError, TpuserveError):
        return 0
    graphs = [metagraph.graph_def for metagraph in metagraphs]
    counts = [
        len(graph.node) + sum(len(function.node_def) for function in graph.library.function)
        for graph in graphs
    ]
    return max(counts, default=0)
