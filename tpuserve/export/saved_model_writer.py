"""Writes a SavedModel with several metagraphs into a new version directory."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export import debug_info, warm_up
from tpuserve.export.atomic_directory import AtomicDirectory
from tpuserve.export.debug_info import SourceLine
from tpuserve.export.deprecation_filter import without_deprecations
from tpuserve.export.function_walk import walk_graphs
from tpuserve.export.metagraph_spec import MetagraphSpec
from tpuserve.export.warm_up import WarmUp
from tpuserve.lowering.passes.automatic_host_ops import mark_host_ops
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import get_saved_model

# The largest size of a protobuf message in bytes: protobuf neither writes nor reads larger ones.
MOST_BYTES = 2**31 - 1


def check_proto_size(graphs: Iterable[Any], most_bytes: int | None = None) -> None:
    """Check that the constants of several graphs together fit into one saved_model.pb.

    Raises:
      ExportError: The constants exceed the limit; the message names the largest constant.
    """
    limit = MOST_BYTES if most_bytes is None else most_bytes
    constants = [
        operation
        for graph in graphs
        for function_graph in walk_graphs(graph)
        for operation in function_graph.get_operations()
        if operation.type == "Const"
    ]
    if sum(map(_value_bytes, constants)) <= limit:
        return
    # The sizes in memory exceed the limit. The sizes in the file can be smaller: if all elements of
    # a constant are equal, the file stores a single element.
    stored = [(operation.node_def.ByteSize(), operation) for operation in constants]
    total = sum(size for size, _ in stored)
    if total > limit:
        size, largest = max(stored, key=lambda pair: pair[0])
        raise ExportError(
            f"the graphs hold {total} bytes of constants, each metagraph its own copy, and a "
            f"saved_model.pb can hold {limit}; the largest, {largest.name!r}, has {size} bytes. "
            f"Make it a variable: variables are stored once, outside of the graphs."
        )


def _value_bytes(operation: Any) -> int:
    (tensor,) = operation.outputs
    return int((tensor.shape.num_elements() or 0) * tensor.dtype.size)


logger = logging.getLogger(__name__)

_ASSET_FILEPATHS = tf.compat.v1.GraphKeys.ASSET_FILEPATHS


class SavedModelWriter:
    """Writes metagraphs into a new version directory, which appears when all are written.

    The writer is a context manager. If its with block raises, all files of the directory are
    removed.
    """

    def __init__(
        self,
        base_directory: str,
        *,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        strip_default_attrs: bool = True,
        warm_up: WarmUp | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Check the arguments; nothing is written yet.

        Args:
          base_directory: Directory of the version directories; created if missing.
          assets_extra: Path below assets.extra/ → file to copy there.
          as_text: Write saved_model.pbtxt instead of saved_model.pb.
          strip_default_attrs: Leave out node attributes whose value is the op's default.
          warm_up: The warm-up records to write; None for no warm-up file.
          clock: Returns the Unix time in seconds, which becomes the name of the version directory.

        Raises:
          InvalidSetting: The base directory is empty, or `assets_extra` names a missing file or an
            invalid target.
          InvalidType: An argument is not a path.
        """
        self._as_text = as_text
        self._strip_default_attrs = strip_default_attrs
        self._warm_up = warm_up
        self._target = AtomicDirectory(
            base_directory,
            assets_extra=assets_extra,
            has_warm_up_file=warm_up is not None,
            clock=clock,
        )
        self._exit_stack = ExitStack()
        self._builder: Any = None
        self._written: list[TagSet] = []
        self._graphs: list[Any] = []
        self._lines: dict[str, SourceLine] = {}

    @property
    def directory(self) -> str:
        """The path of the version directory, below the base directory; "" until it is complete."""
        return self._target.directory

    def __enter__(self) -> "SavedModelWriter":
        self._exit_stack.enter_context(self._target)
        self._exit_stack.push(self._complete)
        self._builder = tf.compat.v1.saved_model.builder.SavedModelBuilder(self._target.path)
        return self

    def add(self, metagraph: MetagraphSpec) -> None:
        """Add a metagraph; with the first one, also write the values of all variables.

        Raises:
          ExportError: Two metagraphs have the same tag set, or the graphs hold more constants than
            a file can hold.
        """
        if metagraph.tags in self._written:
            raise ExportError(
                f"two metagraphs of one export are tagged {sorted(metagraph.tags)}. Give each "
                f"its own tag set."
            )
        self._graphs.append(metagraph.graph)
        check_proto_size(self._graphs)
        arguments = {
            "tags": sorted(metagraph.tags),
            "signature_def_map": dict(metagraph.signatures),
            "assets_collection": metagraph.graph.get_collection(_ASSET_FILEPATHS),
            "main_op": metagraph.init_op,
            "strip_default_attrs": self._strip_default_attrs,
            "saver": metagraph.saver,
        }
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        # Let the session assign devices only to the ops that it runs, which restore the variables:
        # the graph can have TPU ops, for which a CPU has no kernel.
        config.graph_options.place_pruned_graph = True
        with metagraph.graph.as_default():
            if self._written:
                with without_deprecations():
                    self._builder.add_meta_graph(**arguments)
            else:
                with tf.compat.v1.Session(config=config) as session:
                    metagraph.restore(session)
                    with without_deprecations():
                        self._builder.add_meta_graph_and_variables(session, **arguments)
        self._written.append(metagraph.tags)
        self._lines |= debug_info.find_source_lines(metagraph.graph)

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # First `_complete` writes the remaining files. Then the AtomicDirectory is renamed to the
        # version directory, or removed after an error.
        self._exit_stack.__exit__(error_type, error, traceback)

    def _complete(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            return
        if not self._written:
            raise ExportError("no metagraph was written. Add one before leaving the writer.")
        metagraphs = get_saved_model(self._builder).meta_graphs
        for metagraph in metagraphs:
            graph = metagraph.graph_def
            functions = {function.signature.name: function for function in graph.library.function}
            mark_host_ops(graph.node, functions)
        self._builder.save(as_text=self._as_text)
        if self._warm_up is not None:
            count = warm_up.write_warm_up_file(self._target.path, metagraphs, self._warm_up)
            logger.info("wrote %d warm-up records", count)
        debug_info.write_debug_info(self._target.path, self._lines)
