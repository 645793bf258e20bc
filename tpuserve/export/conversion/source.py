"""Reads the SavedModel to convert, and selects the metagraph and the signatures to convert."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.errors import (
    DamagedSavedModel,
    ExportError,
    MetagraphNotFound,
    SignatureNotFound,
    UnsupportedModel,
)
from tpuserve.files.file_listing import list_files
from tpuserve.graph.graph_walk import REPLICATE_METADATA, TPU_CALL
from tpuserve.saved_model import metagraph, op_imports, proto_file
from tpuserve.saved_model.op_packages import unknown_ops_error
from tpuserve.saved_model.saved_model_message import meta_graph_defs, read_saved_model_message
from tpuserve.saved_model.signature import INIT_SIGNATURE
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import op_def_registry

_TPU_OPS = (TPU_CALL, REPLICATE_METADATA)


@dataclass(frozen=True)
class Source:
    """A SavedModel to convert."""

    directory: Path
    saved_model: Any
    meta_graph: Any
    signatures: tuple[str, ...]


def read_source(directory: Path, tags: TagSet, signatures: Sequence[str]) -> Source:
    """Read a SavedModel and select the metagraph and the signatures to convert.

    Args:
      signatures: Names of the signatures; empty for all.

    Raises:
      UnsupportedModel: The metagraph has an op that the installed TensorFlow does not know.
    """
    described = metagraph.read_saved_model(directory)
    if described.problems:
        raise DamagedSavedModel(" ".join(described.problems))
    saved_model = read_saved_model_message(directory)
    by_tags = meta_graph_defs(saved_model)
    _check_tags(directory, tags, by_tags)
    meta_graph = by_tags[tags]
    op_imports.import_packages_of([meta_graph], directory)
    _check_ops(directory, tags, meta_graph)
    names = sorted(name for name in meta_graph.signature_def if name != INIT_SIGNATURE)
    if not names:
        raise ExportError(
            f"the metagraph {tag_sets.format_tags(tags)} of {directory} has no signature. Save the "
            f"model with signatures."
        )
    for name in signatures:
        if name not in names:
            raise SignatureNotFound(
                f"no signature {name!r} in {directory}; found {', '.join(names)}. Use one of "
                f"those names."
            )
    chosen = tuple(name for name in names if not signatures or name in signatures)
    return Source(directory, saved_model, meta_graph, chosen)


def find_aliased_functions(source: Source, alias: str) -> frozenset[str]:
    """Return the names of the functions that tf.saved_model.save stored under an alias."""
    aliases = source.meta_graph.meta_info_def.function_aliases
    functions = frozenset(name for name, value in aliases.items() if value == alias)
    if not functions:
        alias_list = ", ".join(sorted(set(aliases.values()))) or "none"
        raise ExportError(
            f"no function has the alias {alias!r} in {source.directory}; found {alias_list}. Save "
            f"the model with tf.saved_model.SaveOptions(function_aliases={{{alias!r}: function}})."
        )
    return functions


def _check_tags(directory: Path, tags: TagSet, available: Iterable[TagSet]) -> None:
    texts = ", ".join(sorted(map(tag_sets.format_tags, available)))
    if tags not in available:
        raise MetagraphNotFound(
            f"no metagraph tagged {tag_sets.format_tags(tags)} in {directory}; found {texts}. "
            f"Choose one of these with --tags."
        )
    if tag_sets.SERVE_TPU in available:
        raise ExportError(
            f"{directory} has a metagraph {tag_sets.format_tags(tag_sets.SERVE_TPU)} already. "
            f"Serve it as it is, or convert the SavedModel that it was made from."
        )


def _check_ops(directory: Path, tags: TagSet, meta_graph: Any) -> None:
    """Check that TensorFlow knows all ops of a metagraph, and that none is a TPU op."""
    graph = meta_graph.graph_def
    version = meta_graph.meta_info_def.tensorflow_version or "of unknown version"
    if graph.versions.min_consumer > tf.compat.v1.GRAPH_DEF_VERSION:
        raise UnsupportedModel(
            f"{directory} needs a TensorFlow later than {tf.__version__}: it was written by "
            f"TensorFlow {version}. Install that version."
        )
    functions = {function.signature.name for function in graph.library.function}
    unknown: Counter[str] = Counter()
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op in _TPU_OPS:
                raise ExportError(
                    f"the metagraph {tag_sets.format_tags(tags)} of {directory} runs on a TPU "
                    f"already: it has the op {node.op} ({node.name!r}). Serve it as it is."
                )
            if node.op not in functions and op_def_registry.get(node.op) is None:
                unknown[node.op] += 1
    if unknown:
        where = f"{directory} (written by TensorFlow {version})"
        raise unknown_ops_error(where, unknown, op_imports.imported())


def saved_model_files(directory: Path) -> list[Path]:
    """Return the files that a conversion copies: all but saved_model.pb and the fingerprint."""
    written = {proto_file.BINARY_NAME, proto_file.TEXT_NAME, "fingerprint.pb"}
    return [
        path
        for path in list_files(directory)
        if path.relative_to(directory).as_posix() not in written
    ]
