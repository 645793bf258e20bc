"""A metagraph on disk → a loaded model: arrays in, arrays out.

A model runs through callables of a version 1 session. They cost a tenth of a SavedModel
signature function a call, and they are what a TPU metagraph needs.
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.framework import ops

from tpuserve import devices
from tpuserve.devices import TpuSystem
from tpuserve.errors import DamagedSavedModel, TpuserveError
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan
from tpuserve.runtime.session import deadline_pool, graph_import, xla_threads
from tpuserve.runtime.session.graph_import import GraphHandles
from tpuserve.runtime.session.multi_signature import MultiSignatureRunner
from tpuserve.runtime.session.signature_runner import SignatureRunner, error_summary
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import Signature
from tpuserve.tags import TagSet

logger = logging.getLogger(__name__)

# What loading raises for files that are missing, cut or changed.
_DAMAGES = (
    tf.errors.OpError,
    DecodeError,
    ValueError,
    RuntimeError,
    OSError,
    KeyError,
    TypeError,
)


class LoadedModel:
    """One metagraph in memory, ready to run; safe to use from many threads.

    Attributes:
      choice: which metagraph this is, on what device, and why.
      signatures: name → what it takes and gives.
      signature_defs: name → the whole SignatureDef message, as the SavedModel holds it.
    """

    def __init__(self, session: Any, prepared: LoadPlan, handles: GraphHandles) -> None:
        """Takes a session that holds a metagraph with its variables restored.

        Args:
          handles: the nodes that the signatures name.
        """
        self.choice = prepared.choice
        self.signature_defs = {
            name: meta_graph_pb2.SignatureDef.FromString(each)
            for name, each in prepared.signature_defs.items()
        }
        self.signatures = {
            name: _with_defaults(each, self.signature_defs[name])
            for name, each in prepared.signatures.items()
        }
        self._session = session
        self._graph = session.graph
        self._handles = handles
        self._bounded = prepared.bounded
        self._entry_points = {
            name: self._entry_point(each, [name]) for name, each in self.signatures.items()
        }
        self._together = MultiSignatureRunner(self.signatures, self._entry_point)
        for entry_point in self._entry_points.values():
            entry_point.warm_up()

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs for some inputs, by alias; runs in the calling thread.

        Shapes are not compared with the signature, as TensorFlow Serving does not either: what
        the graph can compute is answered.

        Args:
          signature_name: a key of `signatures`.
          inputs: alias → array of the signature's type; strings are object arrays of bytes.
            One that the signature has a default for may be left out.
          output_names: the outputs wanted; None for all of them.
          timeout_ms: how long the run may take; None for as long as it takes. On a real TPU it
            counts for nothing, as in TensorFlow Serving.

        Raises:
          SignatureNotFound: there is no such signature.
          InvalidInput: an input or an output that the signature does not have.
          InvalidTensor: an input of another type, or of a shape that the graph refuses.
          DeadlineExceeded: the time is over.
          ModelExecutionError: the graph failed for another reason.
        """
        entry_point = self._entry_points.get(signature_name)
        if entry_point is None:
            signatures.find_signature(self.signatures, signature_name)
            raise AssertionError(signature_name)
        return entry_point.run(inputs, output_names, timeout_ms)

    def run_multi(
        self,
        wanted: Mapping[str, Sequence[str]],
        inputs: Mapping[str, np.ndarray[Any, Any]],
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """The outputs of several signatures for the same inputs, computed in one run.

        Args:
          wanted: signature → the outputs wanted of it, by alias.
          inputs, timeout_ms: as of `run`.

        Returns:
          Signature → alias → array.

        Raises:
          InvalidInput: signatures that do not take the same tensors; and as of `run`.
          SignatureNotFound, InvalidTensor, DeadlineExceeded, ModelExecutionError: as of `run`.
        """
        return self._together.run(wanted, inputs, timeout_ms)

    def close(self) -> None:
        """Frees the session; `run` fails from here on."""
        self._session.close()
        # Closed, it still holds the variables; they go with the last reference to it.
        self._session = None
        for each in self._entry_points.values():
            each.close()
        self._together.close()
        # A graph is full of circles, and would be there until the collector comes.
        ops.dismantle_graph(self._graph)

    def _entry_point(self, signature: Signature, names: Sequence[str]) -> SignatureRunner:
        return SignatureRunner(
            self._session,
            signature,
            self._handles.tensor,
            is_bounded=self._bounded.issuperset(names),
            keeps_deadlines=self.choice.device != "TPU",
        )


def load(
    directory: str | bytes | os.PathLike[str],
    wanted_tags: TagSet | None = None,
    hardware: TpuSystem | None = None,
    *,
    session_config: bytes = b"",
    fallback_to_cpu: bool = False,
    forbid_unsafe_ops: bool = False,
    initialise_tpu: bool = True,
    make_plan: Callable[[LoadRequest], LoadPlan] = make_load_plan,
    executor: Callable[[Callable[[], LoadedModel]], LoadedModel] = lambda work: work(),
) -> LoadedModel:
    """The model of a SavedModel directory, loaded and ready to run.

    On an emulated TPU a TPU metagraph is lowered first; see `tpuserve.lowering`.

    Args:
      directory: holds saved_model.pb and variables/; as bytes too, as `export_saved_model` of an
        estimator returns it.
      wanted_tags: the exact tag set of the metagraph; None leaves it to `tpuserve.select`.
      hardware: what there is to run on; None looks.
      session_config: a serialised ConfigProto.
      fallback_to_cpu: whether to take the {serve} metagraph where the wanted one cannot be had.
      forbid_unsafe_ops: whether to refuse ops that reach out; see
      `tpuserve.saved_model.unsafe_ops`.
      initialise_tpu: whether to bring up a real TPU system that is not up yet.
      make_plan: does the part of it that needs no TensorFlow; see `tpuserve.runtime.load_plan`.
      executor: runs the part of it that is long and needs no Python; in another thread, say.

    Raises:
      SavedModelNotFound, DamagedSavedModel: nothing there, or nothing that can be read.
      MetagraphNotFound, TpuNotFound: see `tpuserve.select.select_metagraph`.
      UnsafeModel: it reaches out, and that is forbidden.
      LoweringError: the TPU metagraph holds an op with no form on a CPU.
    """
    directory = Path(os.fsdecode(directory))
    hardware = devices.find_tpu_system() if hardware is None else hardware
    prepared = make_plan(
        LoadRequest(directory, wanted_tags, hardware, fallback_to_cpu, forbid_unsafe_ops)
    )
    choice = prepared.choice
    if choice.fallback:
        logger.warning("%s: %s", directory, choice.fallback)
    if choice.device == "TPU" and initialise_tpu:
        devices.initialise_tpu_system()
    config = tf.compat.v1.ConfigProto.FromString(session_config)
    config.allow_soft_placement = True
    deadline_pool.add_deadline_pool(config)
    graph = tf.Graph()

    def run() -> LoadedModel:
        session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            graph_import.initialise_session(session, prepared)
            return LoadedModel(session, prepared, handles)
        except BaseException:
            session.close()
            raise

    try:
        handles = graph_import.import_graph(graph, prepared)
        if choice.device != "TPU" and xla_threads.uses_xla(
            each.content for each in prepared.pieces
        ):
            xla_threads.start_xla_thread_pool(config)
        return executor(run)
    except BaseException as error:
        ops.dismantle_graph(graph)
        if isinstance(error, TpuserveError) or not isinstance(error, _DAMAGES):
            raise
        raise DamagedSavedModel(
            f"cannot load {directory}: {error_summary(error)}. Export the model again."
        ) from error


def _with_defaults(signature: Signature, proto: Any) -> Signature:
    if not proto.defaults:
        return signature
    defaults = {name: tf.make_ndarray(each) for name, each in proto.defaults.items()}
    return dataclasses.replace(signature, defaults=defaults)
