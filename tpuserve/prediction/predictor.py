"""Runs a loaded model on batches of records, and pads batches where XLA needs a fixed size."""

from collections.abc import Mapping

import numpy as np

from tpuserve.errors import Code, CodedError, InvalidInput, InvalidTensor
from tpuserve.prediction.batch import InputBatch
from tpuserve.runtime.loaded_model import Array, LoadedModel
from tpuserve.select import DEFAULT_RUNTIME


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
