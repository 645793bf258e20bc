"""Runs a model on tf.train.Examples, for programs that read and write their records themselves.

The Beam pipelines of `tpuserve.beam` are such programs.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tpuserve.errors import Code, CodedError, InvalidInput, InvalidTensor
from tpuserve.prediction import prediction_logs
from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.readers.examples import ExampleParser
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import Array, LoadedModel
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, find_signature
from tpuserve.select import DEFAULT_RUNTIME
from tpuserve.tags import TagSet


class Predictor:
    """Runs a loaded model on batches, and checks that outputs and inputs have the same batch size.

    Small batches are padded if the model is compiled for each batch size.

    Args:
      batch_size: the size of a full batch. If XLA compiles the model, smaller batches are
        padded to this size, so that XLA compiles only once.
    """

    def __init__(self, model: LoadedModel, batch_size: int) -> None:
        self._model = model
        choice = model.choice
        is_compiled = choice.is_tpu_graph or choice.runtime != DEFAULT_RUNTIME
        self._padded_rows = batch_size if is_compiled else 0

    def run(self, batch: InputBatch) -> dict[str, Array]:
        """Return the outputs of a batch, without padding: alias → array [rows, ...]."""
        inputs = batch.inputs
        # A batch without rows has none to repeat, and is run as it is.
        is_padded = batch.row_counts is not None and batch.rows > 0
        padding = max(self._padded_rows - batch.rows, 0) if is_padded else 0
        if padding:
            # Pad with copies of the last row. Padding with zeros could be invalid input for the
            # model.
            inputs = {alias: _pad(array, padding) for alias, array in inputs.items()}
        try:
            outputs = self._model.run(batch.signature_name, inputs, batch.output_names)
        except InvalidTensor as error:
            raise InvalidTensor(f"{batch.where}: {error}") from error
        except InvalidInput as error:
            raise InvalidInput(f"{batch.where}: {error}") from error
        if batch.row_counts is None:
            return outputs
        _check_rows(outputs, batch.rows + padding, batch.where)
        return {alias: array[: batch.rows] for alias, array in outputs.items()}


def _pad(array: Array, rows: int) -> Array:
    return np.concatenate([array, np.repeat(array[-1:], rows, axis=0)])


def _check_rows(outputs: Mapping[str, Array], rows: int, where: str) -> None:
    for alias, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != rows:
            raise CodedError(
                f"{where}: the output {alias!r} has the shape {list(array.shape)} for {rows} rows, "
                f"so its values belong to no row. Choose a signature whose outputs have a row for "
                f"each row of the inputs.",
                Code.FAILED_PRECONDITION,
            )


class ExamplePredictor:
    """A loaded model that predicts serialised tf.train.Examples in memory.

    The results are those that `tpuserve predict` writes for a file with the same Examples.

    Args:
      tags: the exact tag set of the metagraph; None to select the metagraph by whether the
        machine has a TPU.
      batch_size: the largest number of Examples in one run of the model.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        signature_name: str = DEFAULT_SIGNATURE,
        *,
        tags: TagSet | None = None,
        batch_size: int,
    ) -> None:
        model = loader.load(Path(directory), tags, batch_sizes=(batch_size,))
        specs = find_signature(model.signatures, signature_name).inputs
        self._predictor = Predictor(model, batch_size)
        self._signature_name = signature_name
        self._batch_size = batch_size
        self._parser = ExampleParser(specs)

    def predict(self, examples: Sequence[bytes]) -> list[bytes]:
        """Return a serialised PredictionLog for each serialised tf.train.Example."""
        logs: list[bytes] = []
        for begin in range(0, len(examples), self._batch_size):
            part = np.array(examples[begin : begin + self._batch_size], object)
            where = f"examples {begin} to {begin + len(part) - 1}"
            inputs = self._parser.to_inputs(part, where)
            batch = InputBatch(where, inputs, (1,) * len(part), self._signature_name)
            logs += prediction_logs.encode_batch(batch, self._predictor.run(batch))
        return logs
