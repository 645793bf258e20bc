"""A version directory with one SavedModel in it, visible only once it is whole."""

import logging
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export.spec import MetagraphSpec
from tpuserve.tags import TagSet

logger = logging.getLogger(__name__)

_builder = tf.compat.v1.saved_model.builder.SavedModelBuilder
_join = tf.io.gfile.join
_ASSET_FILEPATHS = tf.compat.v1.GraphKeys.ASSET_FILEPATHS


class SavedModelWriter:
    """Writes metagraphs one by one beside the final place; renames when all are written.

    Use it as a context manager: leaving it in peace gives the directory its name, leaving it
    with an error removes what was written.

    Attributes:
      directory: the version directory, a child of the base named by a Unix time in seconds.
    """

    def __init__(
        self,
        base_directory: str,
        *,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Chooses the version directory.

        Args:
          base_directory: where version directories live; created if missing.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          clock: gives the time in seconds that versions are named by.
        """
        self._base = base_directory
        self._assets_extra = dict(assets_extra or {})
        self._as_text = as_text
        version = _free_version(base_directory, int(clock()))
        self.directory = _join(base_directory, str(version))
        self._staging = _join(base_directory, f"temp-{version}")
        self._saved_model: Any = None
        self._written: list[TagSet] = []

    def __enter__(self) -> "SavedModelWriter":
        tf.io.gfile.makedirs(self._base)
        # The builder makes the directory itself, and refuses one that is there.
        self._saved_model = _builder(self._staging)
        return self

    def add(self, metagraph: MetagraphSpec) -> None:
        """Adds a metagraph; the first one brings the variables of all.

        Raises:
          ExportError: two metagraphs have the same tag set.
        """
        if metagraph.tags in self._written:
            raise ExportError(
                f"two metagraphs of one export are tagged {sorted(metagraph.tags)}. Give each "
                f"its own tag set."
            )
        arguments = {
            "tags": sorted(metagraph.tags),
            "signature_def_map": dict(metagraph.signatures),
            "assets_collection": metagraph.graph.get_collection(_ASSET_FILEPATHS),
            "main_op": metagraph.init_op,
            "strip_default_attrs": True,
        }
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        # Only what restores the variables is placed: TPU ops have no kernel on this machine.
        config.graph_options.place_pruned_graph = True
        with metagraph.graph.as_default():
            if self._written:
                self._saved_model.add_meta_graph(**arguments)
            else:
                with tf.compat.v1.Session(config=config) as session:
                    metagraph.restore(session)
                    self._saved_model.add_meta_graph_and_variables(session, **arguments)
        self._written.append(metagraph.tags)

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._saved_model.save(as_text=self._as_text)
            self._copy_assets()
            tf.io.gfile.rename(self._staging, self.directory)
        except BaseException:
            self._discard()
            raise
        logger.info("exported %s", self.directory)

    def _copy_assets(self) -> None:
        for relative_path, source in self._assets_extra.items():
            target = _join(self._staging, "assets.extra", relative_path)
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(source, target)

    def _discard(self) -> None:
        if tf.io.gfile.exists(self._staging):
            tf.io.gfile.rmtree(self._staging)


def _free_version(base_directory: str, version: int) -> int:
    while any(
        tf.io.gfile.exists(_join(base_directory, name))
        for name in (str(version), f"temp-{version}")
    ):
        version += 1
    return version
