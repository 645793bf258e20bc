"""Serves, predicts and trains on clusters of Ray. It needs `pip install ".[ray]"`.

    serve.start(grpc_options=tpuserve.ray.grpc_options())
    digits = tpuserve.ray.deployment(
        "/models/digits", model_name="digits", options={"num_replicas": 2}
    )
    serve.run(digits)

    rows = ray.data.read_tfrecords("data-*.tfrecord")
    rows.map_batches(
        tpuserve.ray.Predict, fn_constructor_args=("/models/digits/1",), concurrency=2
    )

The functions `deployment`, `build` and `grpc_options` are defined in `server.ray.deployment`.
"""

import importlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
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
        'pip install ".[ray]"'
    ) from error

__all__ = ["Predict", "build", "deployment", "grpc_options", "run_program"]  # noqa: F822

_SERVER_FUNCTIONS = ("build", "deployment", "grpc_options")


def __getattr__(name: str) -> Any:
    """Return a function of this module that the package `server` defines."""
    if name in _SERVER_FUNCTIONS:
        return getattr(importlib.import_module("server.ray.deployment"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run_program(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a TPUEstimator program in a worker of Ray's TensorflowTrainer, and wait for its end.

    Call this function in the training function of the trainer. Ray sets a TF_CONFIG that has only
    workers.

    Args:
      environment: additional environment variables, such as TPUSERVE_TPU_RUNTIME.
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
    """Runs a SavedModel on the batches of a Ray Dataset; pass the class to `Dataset.map_batches`.

    The model gets the columns that have the names of the signature's inputs. The result has all
    columns of the batch, and a column for each output.

    Args:
      tags: the exact tag set of the metagraph; None to choose the metagraph by whether the
        machine has a TPU.
      import_ops: Python packages, and paths of libraries, that register ops of the model.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        signature_name: str = DEFAULT_SIGNATURE,
        *,
        tags: TagSet | None = None,
        import_ops: str | Sequence[str] = (),
    ) -> None:
        from tpuserve.runtime import loader
        from tpuserve.saved_model import op_imports

        op_imports.import_ops(import_ops)
        self._model = loader.load(directory, tags)
        self._signature = find_signature(self._model.signatures, signature_name)
        self._signature_name = signature_name

    def __call__(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model on a batch, and return the batch with a column for each output."""
        inputs = {
            alias: _to_input(alias, columns[alias], spec)
            for alias, spec in self._signature.inputs.items()
            if alias in columns
        }
        self._signature.check_inputs(inputs.keys())
        return {**columns, **self._model.run(self._signature_name, inputs)}


def _to_input(alias: str, column: Array, spec: TensorSpec) -> Array:
    """Convert a column of a Ray batch to an array with the dtype of an input."""
    if spec.dtype == "string":
        encoded = [value.encode() if isinstance(value, str) else value for value in column.tolist()]
        return np.array(encoded, object)
    import tensorflow as tf

    dtype = tf.as_dtype(spec.dtype).as_numpy_dtype
    try:
        array = np.stack(list(column)) if column.dtype.hasobject and len(column) else column
        if spec.shape is not None and array.ndim + 1 == len(spec.shape) and spec.shape[-1] == 1:
            # Ray reads a feature of a tf.train.Example with a single value as a number and not as a
            # list of one number. Restore the dimension of size 1.
            array = array[:, np.newaxis]
        array = np.asarray(array)
        converted = array.astype(dtype, casting="same_kind")
        # NumPy's conversion of integers to fewer bits discards the upper bits without an error.
        if array.dtype.kind in "iu" and not np.array_equal(array, converted):
            raise ValueError(f"a value is out of the range of {spec.dtype}")
        return converted
    except (TypeError, ValueError) as error:
        raise InvalidTensor(
            f"the column {alias!r} cannot become the input {alias!r}, {spec}: {error}. Convert the "
            f"column, or choose another signature."
        ) from error
