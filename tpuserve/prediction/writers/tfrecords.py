"""Writes the results of a batch prediction to TFRecord files of PredictionLog messages."""

from collections.abc import Mapping

from tpuserve.prediction import prediction_logs
from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.writers.append_file import AppendFile
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.tfrecord import frame_records


class PredictionLogWriter(AppendFile):
    """Writes a PredictionLog, with inputs and outputs, for each record of the input file.

    The class implements `tpuserve.prediction.writers.Writer`.
    """

    def write(self, batch: InputBatch, outputs: Mapping[str, Array]) -> None:
        """Append a PredictionLog for each record of a batch."""
        self.append([frame_records(prediction_logs.encode_batch(batch, outputs))])
