"""Runs SavedModels in pipelines of Apache Beam. It needs `pip install ".[beam]"`.

The classes and functions have the same names as those of tfx_bsl.public.beam.run_inference. To move
a pipeline from tfx_bsl to this module, change only its imports.

    spec = InferenceSpecType(SavedModelSpec("/models/half/1"))
    examples | RunInference(spec)
    examples | apache_beam.ml.inference.base.RunInference(CreateModelHandler(spec))
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuserve.errors import ExtraNotInstalled, InvalidSetting
from tpuserve.saved_model import metagraph
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE

try:
    from apache_beam.ml.inference import base
except ImportError as error:
    raise ExtraNotInstalled(
        f"tpuserve.beam needs the package apache-beam, which cannot be imported ({error}). Run: "
        'pip install ".[beam]"'
    ) from error

__all__ = ["CreateModelHandler", "InferenceSpecType", "RunInference", "SavedModelSpec"]

_MAX_BATCH_SIZE = 128


@dataclass(frozen=True)
class SavedModelSpec:
    """Names a SavedModel. The attributes are the fields of tfx_bsl's message of the same name.

    Attributes:
      tag: the tags of the metagraph to run; if empty, the metagraph is chosen by whether the
        machine has a TPU.
      signature_name: a sequence of at most one name, that of the signature to run; empty for
        "serving_default".
    """

    model_path: str
    tag: Sequence[str] = ()
    signature_name: Sequence[str] = ()


@dataclass(frozen=True)
class InferenceSpecType:
    """Names a model to run. tfx_bsl's message of the same name is accepted as well."""

    saved_model_spec: SavedModelSpec = field(default_factory=lambda: SavedModelSpec(""))


class _ModelHandler(base.ModelHandler):  # type: ignore[misc]
    """Beam's ModelHandler for a SavedModel, which loads and runs the model in Beam's workers."""

    def __init__(self, spec: Any, max_batch_size: int, import_ops: str | Sequence[str]) -> None:
        super().__init__(max_batch_size=max_batch_size)
        self._directory = str(spec.model_path)
        self._tags = frozenset(spec.tag) or None
        self._signature_name = spec.signature_name[0] if spec.signature_name else DEFAULT_SIGNATURE
        self._max_batch_size = max_batch_size
        self._import_ops = import_ops

    def load_model(self) -> Any:
        """Load the model; Beam calls this method once in each worker process."""
        from tpuserve.prediction.example_predictor import ExamplePredictor
        from tpuserve.saved_model import op_imports

        op_imports.import_ops(self._import_ops)
        return ExamplePredictor(
            self._directory, self._signature_name, tags=self._tags, batch_size=self._max_batch_size
        )

    def run_inference(
        self, batch: Sequence[Any], model: Any, inference_args: Mapping[str, Any] | None = None
    ) -> Iterable[Any]:
        from tensorflow_serving.apis import prediction_log_pb2

        logs = model.predict([_to_bytes(example) for example in batch])
        return map(prediction_log_pb2.PredictionLog.FromString, logs)

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        """Return the size in bytes of the serialised examples of a batch, for Beam's metrics."""
        return sum(len(_to_bytes(example)) for example in batch)

    def get_metrics_namespace(self) -> str:
        return "tpuserve"


def CreateModelHandler(
    inference_spec_type: Any,
    max_batch_size: int = _MAX_BATCH_SIZE,
    import_ops: str | Sequence[str] = (),
) -> Any:
    """Create a ModelHandler of Beam for a SavedModel. The handler returns PredictionLogs.

    Args:
      max_batch_size: the largest number of examples in one run of the model.
      import_ops: Python packages, and paths of libraries, that register ops of the model.
    """
    spec = getattr(inference_spec_type, "saved_model_spec", None)
    if spec is None or not spec.model_path:
        raise InvalidSetting(
            f"the inference_spec_type is {inference_spec_type!r}, which names no SavedModel. Give "
            f"InferenceSpecType(SavedModelSpec(model_path))."
        )
    if len(spec.signature_name) > 1:
        names = ", ".join(spec.signature_name)
        raise InvalidSetting(
            f"the saved_model_spec has the signatures {names}. Give one signature, and use a "
            f"RunInference for each."
        )
    metagraph.read_metagraphs(spec.model_path)
    return _ModelHandler(spec, max_batch_size, import_ops)


def RunInference(
    inference_spec_type: Any,
    max_batch_size: int = _MAX_BATCH_SIZE,
    import_ops: str | Sequence[str] = (),
) -> Any:
    """Create a transform that runs a SavedModel on a PCollection of examples.

    Its result is a PCollection of PredictionLogs. The arguments are those of CreateModelHandler.
    """
    return "RunInference" >> base.RunInference(
        CreateModelHandler(inference_spec_type, max_batch_size, import_ops)
    )


def _to_bytes(example: Any) -> bytes:
    return example if isinstance(example, bytes) else example.SerializeToString()
