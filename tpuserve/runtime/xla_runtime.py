"""The "xla" runtime, which runs a CPU metagraph with XLA or, if XLA cannot run it, in a session."""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuserve.errors import (
    DamagedSavedModel,
    ExportError,
    LoweringError,
    UnsupportedModel,
    UnsupportedOnTpu,
)
from tpuserve.graph.loops import has_loop
from tpuserve.lowering.passes.ref_variables import replace_ref_variables
from tpuserve.lowering.signature_outlining import outline_signatures
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.pjrt_runtime import PjrtPlan, make_pjrt_plan
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.session.session_plan import SessionPlan, make_session_plan
from tpuserve.runtime.session.session_runtime import SessionRuntime
from tpuserve.saved_model.signature import Signature
from tpuserve.select import DEFAULT_RUNTIME, MetaGraphSelection

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class XlaPlan:
    """A CPU metagraph that is prepared for XLA and, as the fallback, for a session.

    Attributes:
      pjrt_plan: the metagraph, prepared for XLA: each signature is computed by one call of one
        function. None if XLA cannot run the metagraph.
      signatures: signature name → signature, whose outputs are the results of the call that
        computes the signature.
      reason: why XLA cannot run the metagraph; empty if no reason is known before compilation.
    """

    session_plan: SessionPlan = field(repr=False)
    pjrt_plan: PjrtPlan | None = field(repr=False)
    signatures: Mapping[str, Signature]
    has_loop: bool
    reason: str


class XlaRuntime:
    """Runs each signature of a CPU metagraph as one XLA program, without a session.

    If XLA cannot run all signatures of a model, the whole model is loaded into a session.
    """

    def make_plan(
        self,
        meta_graph: Any,
        directory: Path,
        choice: MetaGraphSelection,
        signatures: Mapping[str, Signature],
    ) -> XlaPlan:
        """Prepare a metagraph for XLA and for a session.

        For XLA, the ops of each signature are moved into one function. The arguments are those of
        `ModelRuntime.make_plan`.
        """
        outlined = type(meta_graph)()
        outlined.CopyFrom(meta_graph)
        session_plan = make_session_plan(meta_graph, directory, choice, signatures)
        try:
            _check_writes(signatures)
            replace_ref_variables(outlined.graph_def)
            renamed = outline_signatures(outlined.graph_def, signatures)
        except (ExportError, UnsupportedModel) as error:
            return XlaPlan(session_plan, None, signatures, has_loop=False, reason=str(error))
        # Write the names of the new output tensors into the SignatureDefs: `make_pjrt_plan` keeps
        # only the nodes that the SignatureDefs need.
        for name, signature in renamed.items():
            for alias, spec in signature.outputs.items():
                outlined.signature_def[name].outputs[alias].name = spec.name
        return XlaPlan(
            session_plan,
            make_pjrt_plan(outlined),
            renamed,
            has_loop=has_loop(outlined.graph_def),
            reason="",
        )

    def load(self, directory: Path, plan: LoadPlan, options: LoadOptions) -> LoadedModel:
        """Load a model for XLA or, if XLA cannot run it, into a session.

        The arguments are those of `ModelRuntime.load`.

        Raises:
          ExtraNotInstalled: jax is missing, or has a version that was not tested.
        """
        xla_plan: XlaPlan = plan.runtime_plan
        reason = xla_plan.reason
        if not reason:
            # Import this module here and not at the top: the import loads TensorFlow, which
            # `make_plan` must not need.
            from tpuserve.runtime.xla_model import load_xla_model

            try:
                return load_xla_model(directory, plan, options)
            except (UnsupportedModel, UnsupportedOnTpu, LoweringError, DamagedSavedModel) as error:
                # Fall back to a session even after a DamagedSavedModel error: it may only mean that
                # the checkpoint stores a variable in slices, which a session can restore.
                reason = str(error)
        logger.warning("%s: TensorFlow runs the model, because XLA cannot: %s", directory, reason)
        fallback = f"TensorFlow runs the model, because XLA cannot: {reason}"
        choice = dataclasses.replace(
            plan.choice,
            runtime=DEFAULT_RUNTIME,
            runtime_reason="because XLA cannot run the model",
            fallback=fallback,
        )
        session = dataclasses.replace(plan, choice=choice, runtime_plan=xla_plan.session_plan)
        return SessionRuntime().load(directory, session, options)


def _check_writes(signatures: Mapping[str, Signature]) -> None:
    """Raise UnsupportedModel if a signature writes: XLA runs with copies of the variables."""
    for name, signature in sorted(signatures.items()):
        if signature.write is not None:
            raise UnsupportedModel(f"signature {name!r} {signature.write}")
