"""Runs a model on tf.train.Examples, for programs that read and write their records themselves.

The Beam pipelines of `tpuserve.beam` are such programs.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidTensor
from tpuserve.prediction import prediction_logs
from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.predictor import Predictor
from tpuserve.prediction.readers.examples import convert_integers, make_parser, string_input
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, find_signature
from tpuserve.tags import TagSet


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
        self._specs = specs
        self._alias = string_input(specs)
        self._parse = None
        if self._alias is None:
            signature = [tf.TensorSpec([None], tf.string)]
            self._parse = tf.function(make_parser(specs), signature)

    def predict(self, examples: Sequence[bytes]) -> list[bytes]:
        """Return a serialised PredictionLog for each serialised tf.train.Example."""
        logs: list[bytes] = []
        for begin in range(0, len(examples), self._batch_size):
            part = np.array(examples[begin : begin + self._batch_size], object)
            where = f"examples {begin} to {begin + len(part) - 1}"
            inputs = self._to_inputs(part, where)
            batch = InputBatch(where, inputs, (1,) * len(part), self._signature_name)
            logs += prediction_logs.encode_batch(batch, self._predictor.run(batch))
        return logs

    def _to_inputs(self, examples: Array, where: str) -> dict[str, Array]:
        if self._alias is not None:
            return {self._alias: examples}
        assert self._parse is not None
        try:
            parsed = self._parse(tf.constant(examples, tf.string))
        except tf.errors.InvalidArgumentError as error:
            raise InvalidTensor(f"{where} do not fit the signature: {error.message}") from error
        arrays = {alias: tensor.numpy() for alias, tensor in parsed.items()}
        return convert_integers(arrays, self._specs, where)
