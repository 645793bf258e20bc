"""A metagraph on disk → a loaded model: arrays in, arrays out.

A model runs through callables of a version 1 session. They cost a tenth of a SavedModel
signature function a call, and they are what a TPU metagraph needs.
"""

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.python.saved_model import loader_impl

from tpuserve import bounded, devices, metagraph, pruned, unsafe_ops
from tpuserve import signature as signatures
from tpuserve.devices import Hardware
from tpuserve.entry_point import EntryPoint, cause
from tpuserve.errors import DamagedSavedModel, TpuserveError
from tpuserve.lowering import lower
from tpuserve.select import Choice, select
from tpuserve.signature import Signature
from tpuserve.tags import TagSet
from tpuserve.together import Together

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

    def __init__(
        self,
        session: Any,
        choice: Choice,
        signatures: Mapping[str, Signature],
        meta_graph: Any,
    ) -> None:
        """Takes a session that holds the metagraph with its variables restored.

        Args:
          meta_graph: the MetaGraphDef message that the session was made of.
        """
        self.choice = choice
        self.signatures = {
            name: _with_defaults(each, meta_graph.signature_def[name])
            for name, each in signatures.items()
        }
        self.signature_defs = {
            name: _copy(each) for name, each in sorted(meta_graph.signature_def.items())
        }
        self._session = session
        self._bounded = {
            name: bounded.is_bounded(
                meta_graph.graph_def, [output.name for output in each.outputs.values()]
            )
            for name, each in self.signatures.items()
        }
        self._entry_points = {
            name: self._entry_point(each, [name]) for name, each in self.signatures.items()
        }
        self._together = Together(self.signatures, self._entry_point)
        for entry_point in self._entry_points.values():
            entry_point.prepare()

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
            signatures.find(self.signatures, signature_name)
            raise AssertionError(signature_name)
        return entry_point.run(inputs, output_names, timeout_ms)

    def run_together(
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

    def _entry_point(self, signature: Signature, names: Sequence[str]) -> EntryPoint:
        return EntryPoint(
            self._session,
            signature,
            is_bounded=all(self._bounded[name] for name in names),
            keeps_deadlines=self.choice.device != "TPU",
        )


def load(
    directory: str | bytes | os.PathLike[str],
    wanted_tags: TagSet | None = None,
    hardware: Hardware | None = None,
    *,
    session_config: bytes = b"",
    fallback_to_cpu: bool = False,
    forbid_unsafe_ops: bool = False,
    initialise_tpu: bool = True,
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
      forbid_unsafe_ops: whether to refuse ops that reach out; see `tpuserve.unsafe_ops`.
      initialise_tpu: whether to bring up a real TPU system that is not up yet.

    Raises:
      SavedModelNotFound, DamagedSavedModel: nothing there, or nothing that can be read.
      MetagraphNotFound, TpuNotFound: see `tpuserve.select.select`.
      UnsafeModel: it reaches out, and that is forbidden.
      LoweringError: the TPU metagraph holds an op with no form on a CPU.
    """
    directory = Path(os.fsdecode(directory))
    hardware = devices.find_hardware() if hardware is None else hardware
    described = {each.tags: each for each in metagraph.read_metagraphs(directory)}
    choice = select(
        described.keys(),
        wanted_tags,
        hardware,
        where=str(directory),
        fallback_to_cpu=fallback_to_cpu,
    )
    if choice.fallback:
        logger.warning("%s: %s", directory, choice.fallback)
    if choice.device == "TPU" and initialise_tpu:
        devices.initialise()
    config = tf.compat.v1.ConfigProto.FromString(session_config)
    config.allow_soft_placement = True
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    try:
        reader = _Loader(directory, choice, forbid_unsafe_ops)
        meta_graph = reader.load(session, list(choice.tags))
        return LoadedModel(session, choice, described[choice.tags].signatures, meta_graph)
    except TpuserveError:
        session.close()
        raise
    except _DAMAGES as error:
        session.close()
        raise DamagedSavedModel(
            f"cannot load {directory}: {cause(error)}. Export the model again."
        ) from error


class _Loader(loader_impl.SavedModelLoader):
    """TensorFlow's own loader, given the lowered graph where one is wanted."""

    def __init__(self, directory: Path, choice: Choice, forbid_unsafe_ops: bool) -> None:
        super().__init__(str(directory))
        self._directory = directory
        self._choice = choice
        self._forbid_unsafe_ops = forbid_unsafe_ops

    def get_meta_graph_def_from_tags(self, tags: Sequence[str]) -> Any:
        found = super().get_meta_graph_def_from_tags(tags)
        # Before anything of it is run, as its initialisation would be.
        if self._forbid_unsafe_ops:
            unsafe_ops.check(found, self._directory)
        meta_graph = type(found)()
        meta_graph.CopyFrom(found)
        if self._choice.lowered:
            meta_graph.graph_def.CopyFrom(lower(found.graph_def, compiled=self._choice.compiled))
        pruned.prune(meta_graph)
        return meta_graph


def _with_defaults(signature: Signature, proto: Any) -> Signature:
    if not proto.defaults:
        return signature
    defaults = {name: tf.make_ndarray(each) for name, each in proto.defaults.items()}
    return dataclasses.replace(signature, defaults=defaults)


def _copy(proto: Any) -> Any:
    # One that is taken out of a message keeps the whole of it, graph and all, in memory.
    copied = type(proto)()
    copied.CopyFrom(proto)
    return copied
