from collections.abc import Sequence

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from tpuserve.errors import ExportError
from tpuserve.export import signature_parity


def signature(
    shape: Sequence[int | None] | None, dtype: tf.DType = tf.float32, output: str = "y"
) -> SignatureDef:
    signature_def = SignatureDef(method_name="tensorflow/serving/predict")
    for infos, alias in ((signature_def.inputs, "x"), (signature_def.outputs, output)):
        infos[alias].dtype = dtype.as_datatype_enum
        infos[alias].tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return signature_def


@pytest.mark.parametrize("shape", [[None, 3], [2, 3], [None, None], None], ids=str)
def test_compatible_shapes_are_the_same(shape: list[int | None] | None) -> None:
    signature_parity.check_same_signatures({"a": signature([None, 3])}, {"a": signature(shape)})


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (signature([None, 4]), r"y: float32 \[\?, 4\]"),
        (signature([None]), r"y: float32 \[\?\]"),
        (signature([None, 3], tf.int32), r"y: int32 \[\?, 3\]"),
        (signature([None, 3], output="z"), r"z: float32"),
        (None, "none in"),
    ],
)
def test_different_signatures_are_refused_and_both_are_shown(
    other: SignatureDef | None, text: str
) -> None:
    tpu = {} if other is None else {"a": other}
    with pytest.raises(ExportError, match=rf"y: float32 \[\?, 3\]\) in the .*{text}"):
        signature_parity.check_same_signatures({"a": signature([None, 3])}, tpu)
