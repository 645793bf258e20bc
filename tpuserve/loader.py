"""A metagraph on disk → a loaded model: arrays in, arrays out.

A model runs through callables of a version 1 session. They cost a tenth of a SavedModel
signature function a call, and they are what a TPU metagraph needs.
"""

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.saved_model import loader_impl

from tpuserve import devices, dtypes, metagraph, refusal
from tpuserve import signature as signatures
from tpuserve.devices import Hardware
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidTensor,
    ModelExecutionError,
    TpuserveError,
)
from tpuserve.lowering import lower
from tpuserve.select import Choice, select
from tpuserve.signature import Signature
from tpuserve.tags import TagSet

logger = logging.getLogger(__name__)

# What loading raises for files that are missing, cut or changed.
_DAMAGES = (tf.errors.OpError, DecodeError, ValueError, RuntimeError, OSError, KeyError)
_HEADINGS = (
    "Graph execution error",
    "Detected at node",
    "Node:",
    "File ",
    "Restoring from checkpoint failed",
)


class LoadedModel:
    """One metagraph in memory, ready to run; safe to use from many threads.

    Attributes:
      choice: which metagraph this is, on what device, and why.
      signatures: name → what it takes and gives.
    """

    def __init__(self, session: Any, choice: Choice, signatures: Mapping[str, Signature]) -> None:
        """Takes a session that holds the metagraph with its variables restored."""
        self.choice = choice
        self.signatures = signatures
        self._session = session
        self._callables: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._lock = threading.Lock()

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        output_names: Sequence[str] | None = None,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs for some inputs, by alias; runs in the calling thread.

        Shapes are not compared with the signature, as TensorFlow Serving does not either: what
        the graph can compute is answered.

        Args:
          signature_name: a key of `signatures`.
          inputs: alias → array of the signature's type; strings are object arrays of bytes.
          output_names: the outputs wanted; None for all of them.

        Raises:
          SignatureNotFound: there is no such signature.
          InvalidInput: an input or an output that the signature does not have.
          InvalidTensor: an input of another type, or of a shape that the graph refuses.
          ModelExecutionError: the graph failed for another reason.
        """
        signature = signatures.find(self.signatures, signature_name)
        names = sorted(signature.inputs)
        signature.check_inputs(inputs.keys())
        feeds = [_checked(inputs[each], signature, each) for each in names]
        # Sorted, so that an order of names does not make a callable of its own.
        wanted = tuple(sorted(signature.outputs if output_names is None else output_names))
        try:
            results = self._callable(signature_name, wanted)(*feeds)
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, ValueError) as error:
            text = _cause(error)
            if refusal.UNSUPPORTED in text:
                raise ModelExecutionError(text) from error
            raise InvalidTensor(text) from error
        except tf.errors.OpError as error:
            raise ModelExecutionError(_cause(error)) from error
        return dict(zip(wanted, results, strict=True))

    def close(self) -> None:
        """Frees the session; `run` fails from here on."""
        self._session.close()

    def _callable(self, signature_name: str, wanted: tuple[str, ...]) -> Any:
        key = signature_name, wanted
        with self._lock:
            if key not in self._callables:
                self._callables[key] = self._make_callable(self.signatures[signature_name], wanted)
            return self._callables[key]

    def _make_callable(self, signature: Signature, wanted: tuple[str, ...]) -> Any:
        signature.check_outputs(wanted)
        options = config_pb2.CallableOptions()
        options.feed.extend(signature.inputs[each].name for each in sorted(signature.inputs))
        options.fetch.extend(signature.outputs[each].name for each in wanted)
        # -1 runs the graph in the calling thread: a hand-over to a pool costs more than a small
        # model does.
        options.run_options.inter_op_thread_pool = -1
        return self._session._make_callable_from_options(options)


def load(
    directory: str | bytes | os.PathLike[str],
    wanted_tags: TagSet | None = None,
    hardware: Hardware | None = None,
) -> LoadedModel:
    """The model of a SavedModel directory, loaded and ready to run.

    On an emulated TPU a TPU metagraph is lowered first; see `tpuserve.lowering`.

    Args:
      directory: holds saved_model.pb and variables/; as bytes too, as `export_saved_model` of an
        estimator returns it.
      wanted_tags: the exact tag set of the metagraph; None leaves it to `tpuserve.select`.
      hardware: what there is to run on; None looks.

    Raises:
      SavedModelNotFound, DamagedSavedModel: nothing there, or nothing that can be read.
      MetagraphNotFound, TpuNotFound: see `tpuserve.select.select`.
      LoweringError: the TPU metagraph holds an op with no form on a CPU.
    """
    directory = Path(os.fsdecode(directory))
    hardware = devices.find_hardware() if hardware is None else hardware
    described = {each.tags: each for each in metagraph.read_metagraphs(directory)}
    choice = select(described.keys(), wanted_tags, hardware, where=str(directory))
    if choice.device == "TPU":
        devices.initialise()
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    try:
        _Loader(str(directory), choice).load(session, list(choice.tags))
    except TpuserveError:
        session.close()
        raise
    except _DAMAGES as error:
        session.close()
        raise DamagedSavedModel(
            f"cannot load {directory}: {_cause(error)}. Export the model again."
        ) from error
    return LoadedModel(session, choice, described[choice.tags].signatures)


class _Loader(loader_impl.SavedModelLoader):
    """TensorFlow's own loader, given the lowered graph where one is wanted."""

    def __init__(self, directory: str, choice: Choice) -> None:
        super().__init__(directory)
        self._choice = choice

    def get_meta_graph_def_from_tags(self, tags: Sequence[str]) -> Any:
        found = super().get_meta_graph_def_from_tags(tags)
        if not self._choice.lowered:
            return found
        meta_graph = type(found)()
        meta_graph.CopyFrom(found)
        meta_graph.graph_def.CopyFrom(lower(found.graph_def, compiled=self._choice.compiled))
        return meta_graph


def _checked(array: np.ndarray[Any, Any], signature: Signature, alias: str) -> np.ndarray[Any, Any]:
    expected = signature.inputs[alias].dtype
    actual = tf.as_dtype(array.dtype).name
    if actual != expected:
        position = sorted(spec.name for spec in signature.inputs.values()).index(
            signature.inputs[alias].name
        )
        raise InvalidTensor(
            f"Expects arg[{position}] to be {dtypes.runtime_name(expected)} but "
            f"{dtypes.runtime_name(actual)} is provided"
        )
    return array


def _cause(error: Exception) -> str:
    """The one line of an error that says what is wrong."""
    # Around it stand the runtime's headings and its stack of nodes.
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith(_HEADINGS)]
    return causes[0].rstrip(".") if causes else type(error).__name__
