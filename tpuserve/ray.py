"""Serving and batch prediction on clusters of Ray: `pip install "tpuserve[ray]"`.

    serve.start(grpc_options=tpuserve.ray.grpc_options())
    serve.run(tpuserve.ray.deployment("/models/digits", model_name="digits", replicas=2))

    rows = ray.data.read_tfrecords("data-*.tfrecord")
    rows.map_batches(tpuserve.ray.Predict, fn_constructor_args=("/models/digits/1",))

`deployment`, `build` and `grpc_options` are functions of `server.ray.deployment`. They are entry
points, because this package does not import `server`.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from tpuserve.errors import ExtraNotInstalled, InvalidTensor, WrongContext
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, TensorSpec, find_signature
from tpuserve.tags import TagSet

try:
    import ray.data
    import ray.serve  # noqa: F401
except ImportError as error:
    raise ExtraNotInstalled(
        f"tpuserve.ray needs packages of Ray, one of which cannot be imported ({error}). Run: "
        'pip install "tpuserve[ray]"'
    ) from error

__all__ = ["Predict", "build", "deployment", "grpc_options", "run_program"]  # noqa: F822

_ENTRY_POINTS = "tpuserve.ray"


def __getattr__(name: str) -> Any:
    """Return a function that another package registers as an entry point.

    Raises:
      AttributeError: no entry point has the name.
    """
    for entry_point in entry_points(group=_ENTRY_POINTS, name=name):
        return entry_point.load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run_program(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a TPUEstimator program in a worker of Ray's TensorflowTrainer, and wait for its end.

    Call this function in the training function. The TF_CONFIG of Ray has only workers; the program
    gets a TF_CONFIG in which the first worker is the chief. The program runs in a process of its
    own, because a worker's program ends its process when the chief's program has ended.

    Args:
      command: the program and its arguments.
      environment: further variables of the environment, such as TPUSERVE_EMULATED_TPU.

    Raises:
      WrongContext: this process is no worker of a TensorflowTrainer.
      subprocess.CalledProcessError: the program has failed.
    """
    if "TF_CONFIG" not in os.environ:
        raise WrongContext(
            "run_program found no TF_CONFIG. Call it in the training function of "
            "ray.train.tensorflow.TensorflowTrainer, which sets TF_CONFIG."
        )
    config = json.loads(os.environ["TF_CONFIG"])
    chief, *workers = config["cluster"]["worker"]
    index = config["task"]["index"]
    cluster = {"chief": [chief], **({"worker": workers} if workers else {})}
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    tf_config = json.dumps({"cluster": cluster, "task": task})
    variables = {**os.environ, **(environment or {}), "TF_CONFIG": tf_config}
    subprocess.run(command, env=variables, check=True)


class Predict:
    """Predicts batches of a Dataset; a class for the method `map_batches` of Datasets.

    The columns with the names of inputs become the inputs. The result has all columns of the batch,
    and a column for each output.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        signature_name: str = DEFAULT_SIGNATURE,
        *,
        tags: TagSet | None = None,
    ) -> None:
        """Load the model; Ray calls this once in each worker.

        Args:
          directory: the directory of the SavedModel, on every node.
          signature_name: the signature to run.
          tags: the exact tag set of the metagraph; None leaves the selection to `tpuserve.select`.

        Raises:
          SignatureNotFound: the model has no such signature.
          TpuserveError: the model cannot be loaded.
        """
        from tpuserve.runtime import loader

        self._model = loader.load(directory, tags)
        self._signature = find_signature(self._model.signatures, signature_name)
        self._signature_name = signature_name

    def __call__(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Return a batch with the outputs added: column name → [rows, ...].

        Raises:
          InvalidInputNames: a column of an input is missing.
          InvalidTensor: a column has another type than its input.
        """
        inputs = {
            alias: _to_input(alias, columns[alias], spec)
            for alias, spec in self._signature.inputs.items()
            if alias in columns
        }
        self._signature.check_inputs(inputs.keys())
        return {**columns, **self._model.run(self._signature_name, inputs)}


def _to_input(alias: str, column: Array, spec: TensorSpec) -> Array:
    """Return a column, which Ray may give as an array of lists, in the dtype of its input."""
    if spec.dtype == "string":
        encoded = [value.encode() if isinstance(value, str) else value for value in column.tolist()]
        return np.array(encoded, object)
    import tensorflow as tf

    dtype = tf.as_dtype(spec.dtype).as_numpy_dtype
    try:
        array = np.stack(list(column)) if column.dtype.hasobject and len(column) else column
        if spec.shape is not None and array.ndim + 1 == len(spec.shape) and spec.shape[-1] == 1:
            # Ray reads features with one value as numbers.
            array = array[:, np.newaxis]
        return np.asarray(array).astype(dtype, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise InvalidTensor(
            f"the column {alias!r} cannot become the input {alias!r}, {spec}: {error}. Convert the "
            f"column, or choose another signature."
        ) from error
