"""The "pjrt" runtime, which runs the computations of a TPU metagraph on PJRT devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuserve.errors import UnsupportedModel
from tpuserve.graph.checkpoint_keys import find_checkpoint_keys
from tpuserve.graph.pruning import prune_metagraph
from tpuserve.lowering import lower
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.registry import LoadOptions
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection


@dataclass(frozen=True)
class PjrtPlan:
    """A TPU metagraph that is prepared for PJRT devices.

    Attributes:
      meta_graph: the serialised MetaGraphDef, without TPU ops and unused nodes. Each computation
        for the TPU is replaced by a call of a function that XLA must compile.
      checkpoint_keys: name of a variable → key of its value in the checkpoint.
    """

    meta_graph: bytes = field(repr=False)
    checkpoint_keys: Mapping[str, str]


class PjrtRuntime:
    """Runs the computations of TPU metagraphs on PJRT devices, and other ops in a session."""

    def make_plan(
        self,
        meta_graph: Any,
        directory: Path,
        choice: MetaGraphSelection,
        signatures: Mapping[str, Signature],
    ) -> PjrtPlan:
        """Prepare a metagraph for PJRT devices: replace its TPU ops, and remove unused nodes.

        The arguments are those of `ModelRuntime.make_plan`.
        """
        if not choice.is_tpu_graph:
            raise UnsupportedModel(
                f"the pjrt runtime runs TPU metagraphs only, and {choice} of {directory} is none. "
                f"Request the tags serve,tpu."
            )
        return make_pjrt_plan(meta_graph)

    def load(self, directory: Path, plan: LoadPlan, options: LoadOptions) -> LoadedModel:
        """Compile the computations for the devices, and load the other ops into a session.

        The arguments are those of `ModelRuntime.load`.
        """
        # Import this module here and not at the top: the import loads TensorFlow, which `make_plan`
        # must not need.
        from tpuserve.runtime.pjrt_model import load_pjrt_model

        return load_pjrt_model(directory, plan, options)


def make_pjrt_plan(meta_graph: Any) -> PjrtPlan:
    """Replace the TPU ops of a metagraph, remove unused nodes, and return the plan of its load."""
    keys = find_checkpoint_keys(meta_graph.graph_def)
    meta_graph.graph_def.CopyFrom(lower(meta_graph.graph_def))
    prune_metagraph(meta_graph)
    return PjrtPlan(meta_graph.SerializeToString(), keys)
