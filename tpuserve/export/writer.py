"""A version directory with one SavedModel in it, visible only once it is whole."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export.spec import MetagraphSpec
from tpuserve.tags import TagSet

logger = logging.getLogger(__name__)

_join = tf.io.gfile.join
_ASSET_FILEPATHS = tf.compat.v1.GraphKeys.ASSET_FILEPATHS


class SavedModelWriter:
    """Writes metagraphs one by one beside the final place; renames when all are written.

    Use it as a context manager: leaving it in peace gives the directory its name, leaving it
    with an error removes what was written.

    Attributes:
      directory: the version directory, a child of the base named by a Unix time in seconds;
        known once it is written.
    """

    def __init__(
        self,
        base_directory: str,
        *,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        strip_default_attrs: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Writes nothing yet.

        Args:
          base_directory: where version directories live; created if missing.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          strip_default_attrs: leave out attributes of ops that have their default value.
          clock: gives the time in seconds that versions are named by.
        """
        self._base = base_directory
        self._assets_extra = dict(assets_extra or {})
        self._as_text = as_text
        self._strip_default_attrs = strip_default_attrs
        self._clock = clock
        self.directory = ""
        # Two exports at once must not write into one place.
        self._staging = _join(base_directory, f"temp-{uuid.uuid4().hex}")
        self._saved_model: Any = None
        self._written: list[TagSet] = []

    def __enter__(self) -> "SavedModelWriter":
        tf.io.gfile.makedirs(self._base)
        # The builder makes the directory itself, and refuses one that is there.
        self._saved_model = tf.compat.v1.saved_model.builder.SavedModelBuilder(self._staging)
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
            "strip_default_attrs": self._strip_default_attrs,
            "saver": metagraph.saver,
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
            self._publish()
        except BaseException:
            self._discard()
            raise
        logger.info("exported %s", self.directory)

    def _publish(self) -> None:
        version = int(self._clock())
        while not self.directory:
            directory = _join(self._base, str(version))
            try:
                tf.io.gfile.rename(self._staging, directory)
            except tf.errors.AlreadyExistsError:
                version += 1
            else:
                self.directory = directory

    def _copy_assets(self) -> None:
        for relative_path, source in self._assets_extra.items():
            target = _join(self._staging, "assets.extra", relative_path)
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(source, target)

    def _discard(self) -> None:
        if tf.io.gfile.exists(self._staging):
            tf.io.gfile.rmtree(self._staging)
