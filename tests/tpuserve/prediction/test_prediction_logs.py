"""The bytes of a PredictionLog are those of a message that protobuf parses."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.prediction_logs import encode_batch


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(4, 2, 3),
        np.arange(4, dtype=np.int64) - 2,
        np.array([True, False, True, True]),
        np.ones([4, 200], ml_dtypes.bfloat16),
        np.array([1 + 2j, 3, 4, 5], np.complex64),
        np.zeros([4, 0], np.uint8),
        np.array([b"", b"\xff", b"x" * 200, b"y"], object),
        np.array([[b"a", b"b"], [b"c", b"d"], [b"e", b"f"], [b"g", b"h"]], object),
        np.arange(8, dtype=np.float64).reshape(2, 4).T,
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
@pytest.mark.parametrize("row_counts", [(1, 1, 1, 1), (3, 1), None])
def test_tensors_are_those_that_were_given(
    array: np.ndarray, row_counts: tuple[int, ...] | None
) -> None:
    batch = InputBatch("file", {"input": array}, row_counts, "100%b")
    records = encode_batch(batch, {"%b" * 100: array, "b": array})
    logs = [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]
    assert len(logs) == len(row_counts or [4])
    begin = 0
    for log, count in zip(logs, row_counts or [4], strict=True):
        rows = array[begin : begin + count]
        begin += count
        assert log.request.model_spec.signature_name == "100%b"
        assert sorted(log.response.outputs) == ["%b" * 100, "b"]
        for proto in (log.request.inputs["input"], *log.response.outputs.values()):
            values = tf.make_ndarray(proto)
            assert values.dtype == array.dtype
            np.testing.assert_array_equal(values, rows)
