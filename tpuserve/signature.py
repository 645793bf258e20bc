"""What a model takes and gives, as frozen data that needs no TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor of a signature.

    Attributes:
      name: the tensor in the graph, "image:0".
      dtype: TensorFlow's name of the element type: "float32", "string", "int64".
      shape: None per unknown dimension; None as a whole where the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} <unknown rank>"
        return f"{self.dtype} [{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Signature:
    """One entry point of a model.

    Attributes:
      inputs, outputs: alias → tensor; the alias is the name clients use.
      method_name: the Serving API it was made for, "tensorflow/serving/predict".
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = PREDICT_METHOD
