"""The "session" runtime, which runs metagraphs in a tf.compat.v1.Session."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.session.session_plan import SessionPlan, make_session_plan
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection


class SessionRuntime:
    """Runs metagraphs in a session: on a CPU, on a real TPU, or on an emulated TPU.

    For an emulated TPU, TPU ops are replaced by CPU ops.
    """

    def make_plan(
        self,
        meta_graph: Any,
        directory: Path,
        choice: MetaGraphSelection,
        signatures: Mapping[str, Signature],
    ) -> SessionPlan:
        """Prepare a metagraph for a session.

        The arguments are those of `ModelRuntime.make_plan`.
        """
        return make_session_plan(meta_graph, directory, choice, signatures)

    def load(self, directory: Path, plan: LoadPlan, options: LoadOptions) -> LoadedModel:
        """Load a model into a new session; the arguments are those of `ModelRuntime.load`."""
        # Import this module here and not at the top: the import loads TensorFlow, which `make_plan`
        # must not need.
        from tpuserve.runtime.session.session_model import load_session_model

        return load_session_model(directory, plan, options)
