"""Describes the server and its models in the messages of the Open Inference Protocol.

The REST and the gRPC frontend share this module. Each method of `Describer` returns a message as a
dictionary: field name → value.
"""

from collections.abc import Mapping
from importlib import metadata
from typing import Any, TypeAlias

from server.codec.datatypes import datatype_name
from server.dataplane import DataPlane, ModelSpec, Statistics
from server.servables.servable import State
from tpuserve.errors import Code, CodedError, Unavailable
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature, TensorSpec

Message: TypeAlias = dict[str, Any]

PLATFORM = "tensorflow_savedmodel"
"""Triton's name of the format of the models."""
SIGNATURE_PARAMETER = "TF_SIGNATURE_DEF"
"""The parameter of a ModelConfig by which Triton's TensorFlow backend names a signature."""

_MAX_INT32 = 2**31 - 1
# TensorFlow's name of a dtype → Triton's name of the dtype in a ModelConfig. Source:
# model_config.proto of Triton.
_TRITON_TYPES = {
    "bool": "TYPE_BOOL",
    **{name: f"TYPE_{name.upper()}" for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: f"TYPE_{name.upper()}" for name in ("int8", "int16", "int32", "int64")},
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "bfloat16": "TYPE_BF16",
    "string": "TYPE_STRING",
}
# State of a version → Triton's name of the state in a RepositoryIndexResponse. Source: the
# documentation of Triton's model repository extension.
_TRITON_STATES = {
    State.START: "LOADING",
    State.LOADING: "LOADING",
    State.AVAILABLE: "READY",
    State.UNLOADING: "UNLOADING",
    State.END: "UNAVAILABLE",
}
_SERVER_NAME = "tpuserve"
# Triton's names of the protocol extensions that this server supports. Source: Triton's
# documentation of its protocol extensions.
_EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
)


class Describer:
    """Describes the server and the served models in the messages of the Open Inference Protocol."""

    def __init__(self, dataplane: DataPlane, *, allows_control: bool = False) -> None:
        self._dataplane = dataplane
        self._allows_control = allows_control

    def server_metadata(self) -> Message:
        """Return a ServerMetadataResponse with the server's name, version and extensions."""
        return {
            "name": _SERVER_NAME,
            "version": metadata.version("tpuserve"),
            "extensions": list(_EXTENSIONS),
        }

    def model_metadata(self, spec: ModelSpec) -> Message:
        """Return a ModelMetadataResponse with the tensors of a signature.

        The shape of a tensor has -1 for a dimension of unknown size. It is [-1] for a tensor of
        unknown rank.

        Args:
          spec: the model, the version and the signature. If `spec` names no signature, the default
            signature of the model is described.
        """
        _, signature = self._find_signature(spec)
        versions = sorted(
            status.version
            for status in self._dataplane.status(spec.model)
            if status.state is State.AVAILABLE
        )
        return {
            "name": spec.model,
            "versions": list(map(str, versions)),
            "platform": PLATFORM,
            "inputs": _describe_tensors(signature.inputs),
            "outputs": _describe_tensors(signature.outputs),
        }

    def model_config(self, spec: ModelSpec) -> Message:
        """Return Triton's ModelConfig of a model version.

        For a batched model, the fields `dims` omit the first dimension.

        The parameter TF_SIGNATURE_DEF has the name of the signature, unless that is
        "serving_default".
        """
        name, signature = self._find_signature(spec)
        tensors = [*signature.inputs.values(), *signature.outputs.values()]
        is_batched = (
            bool(signature.inputs)
            and all((tensor.shape or ())[:1] == (None,) and tensor.is_dense for tensor in tensors)
            and all(len(tensor.shape or ()) > 1 for tensor in signature.inputs.values())
        )
        config: Message = {
            "name": spec.model,
            "platform": PLATFORM,
            "backend": "tensorflow",
            "max_batch_size": _MAX_INT32 if is_batched else 0,
            "input": _configure_tensors(signature.inputs, is_batched),
            "output": _configure_tensors(signature.outputs, is_batched),
        }
        if is_batched and self._dataplane.statistics(spec).batching is not None:
            config["dynamic_batching"] = {}
        if name != DEFAULT_SIGNATURE:
            config["parameters"] = {SIGNATURE_PARAMETER: {"string_value": name}}
        return config

    def model_statistics(self, spec: ModelSpec) -> Message:
        """Return Triton's ModelStatisticsResponse: counts and durations of the runs of models."""
        models = self._dataplane.models()
        names = [spec.model] if spec.model else sorted(models)
        described = [
            _describe_statistics(self._dataplane.statistics(ModelSpec(name, status.version)))
            for name in names
            for status in reversed(models.get(name, ()))
            if status.state is State.AVAILABLE and spec.version in (None, status.version)
        ]
        if spec.model and not described:
            # The requested version is not available. Ask the data plane for the statistics of this
            # version to get the error that says why.
            described = [_describe_statistics(self._dataplane.statistics(spec))]
        return {"model_stats": described}

    def repository_index(self, is_ready: bool) -> Message:
        """Return Triton's RepositoryIndexResponse: the versions of all models, with their states.

        Args:
          is_ready: whether the response lists only the versions that are available.
        """
        entries = []
        for name, model in sorted(self._dataplane.list_models().items()):
            for status in sorted(model.versions, key=lambda version: version.version):
                can_answer = self._dataplane.can_answer(name, status.version)
                if is_ready and not can_answer:
                    continue
                entry = {"name": name, "version": str(status.version)}
                entry["state"] = "READY" if can_answer else _TRITON_STATES[status.state]
                if status.error is not None:
                    entry["reason"] = " ".join(str(status.error).split())
                elif status.state is State.START:
                    entry["reason"] = status.note
                entries.append(entry)
            if not model.versions and not is_ready:
                reason = "" if model.reason is None else " ".join(str(model.reason).split())
                entries.append({"name": name, "state": "UNAVAILABLE", "reason": reason})
        return {"models": entries}

    def load_model(self, model: str) -> Message:
        """Load a model, and return a RepositoryModelLoadResponse."""
        self._check_control(model)
        self._dataplane.load_model(model)
        return {}

    def unload_model(self, model: str) -> Message:
        """Unload a model, and return a RepositoryModelUnloadResponse."""
        self._check_control(model)
        self._dataplane.unload_model(model)
        return {}

    def is_ready(self, spec: ModelSpec) -> bool:
        """Return whether a model can answer requests, or is loaded by the first request.

        If `spec` names a version, this version must be available; otherwise any version.

        Raises:
          ModelNotFound: the server knows no such version.
        """
        self._dataplane.status(spec.model, spec.version)
        return self._dataplane.can_answer(spec.model, spec.version)

    def check_ready(self, spec: ModelSpec) -> None:
        """Raise an error unless a model can answer requests.

        If `spec` names a version, this version must be available; otherwise any version.

        Raises:
          Unavailable: the model or the version cannot answer requests, for example because it is
            still loading.
        """
        if not self.is_ready(spec):
            raise Unavailable(
                f"model {spec.model} is not ready. Read the states of its versions from "
                f"/v1/models/{spec.model}."
            )

    def _find_signature(self, spec: ModelSpec) -> tuple[str, Signature]:
        return spec.find_signature(self._dataplane.metadata(spec, ["signature_def"]).signatures)

    def _check_control(self, model: str) -> None:
        if not self._allows_control:
            raise CodedError(
                f"model {model!r} cannot be loaded or unloaded by a client. Start the server with "
                f"--enable_model_control.",
                Code.PERMISSION_DENIED,
            )


def _configure_tensors(specs: Mapping[str, TensorSpec], is_batched: bool) -> list[Message]:
    return [
        {
            "name": alias,
            "data_type": _TRITON_TYPES.get(spec.dtype if spec.is_dense else "", "TYPE_INVALID"),
            "dims": describe_shape(spec)[1 if is_batched else 0 :],
        }
        for alias, spec in specs.items()
    ]


def _describe_statistics(statistics: Statistics) -> Message:
    """Return Triton's ModelStatistics of a model version."""
    runs, batching = statistics.inferences, statistics.batching
    queue_ns = 0
    if batching is not None:
        queue_ns = min(batching["mean_queue_us"] * batching["requests"] * 1000, runs.success_ns)
    count, success_ns = runs.num_successes, runs.success_ns + runs.decode_ns + runs.encode_ns
    return {
        "name": statistics.model,
        "version": str(statistics.version),
        "last_inference": runs.last_ms,
        "inference_count": runs.num_rows,
        "execution_count": runs.num_runs,
        "inference_stats": {
            "success": {"count": count, "ns": success_ns},
            "fail": {"count": runs.num_failures, "ns": runs.failure_ns},
            "queue": {"count": count, "ns": queue_ns},
            "compute_input": {"count": count, "ns": runs.decode_ns},
            "compute_infer": {"count": count, "ns": runs.success_ns - queue_ns},
            "compute_output": {"count": count, "ns": runs.encode_ns},
            "cache_hit": {"count": 0, "ns": 0},
            "cache_miss": {"count": 0, "ns": 0},
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": {"count": size.num_runs, "ns": size.decode_ns},
                "compute_infer": {"count": size.num_runs, "ns": size.run_ns},
                "compute_output": {"count": size.num_runs, "ns": size.encode_ns},
            }
            for rows, size in sorted(runs.sizes.items())
            if size.num_runs
        ],
    }


def _describe_tensors(specs: Mapping[str, TensorSpec]) -> list[Message]:
    return [
        {"name": alias, "datatype": datatype_name(spec), "shape": describe_shape(spec)}
        for alias, spec in specs.items()
    ]


def describe_shape(spec: TensorSpec) -> list[int]:
    """Return the shape of a tensor with -1 for an unknown size, and [-1] for an unknown rank."""
    if spec.shape is None:
        return [-1]
    return [-1 if size is None else size for size in spec.shape]
