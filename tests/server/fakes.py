"""A small fake model without TensorFlow, and a loader of such models."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from server.admission.cancellation import Cancellation
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor, ModelExecutionError
from tpuserve.saved_model.signature import Signature, TensorSpec

VECTOR = (None,)


def spec(dtype: str, name: str = "x") -> TensorSpec:
    return TensorSpec(f"{name}:0", dtype, VECTOR)


class FakeModel:
    """Computes x / 2 + 2, and has signatures of other kinds that the frontends must handle.

    Signatures: "serving_default" computes y = x / 2 + 2, "two" the sum and the difference of a and
    b, "ratio" 1 / x. "echo" returns its strings as "text" and as "text_bytes". "nothing" has no
    inputs. "failing" raises an error of a model, "broken" an unexpected exception.
    """

    choice = "{serve} on CPU (a fake)"
    signatures: Mapping[str, Signature] = {
        "serving_default": Signature({"x": spec("float32")}, {"y": spec("float32", "y")}),
        "two": Signature(
            {"a": spec("int32", "a"), "b": spec("int32", "b")},
            {"sum": spec("int32", "s"), "difference": spec("int32", "d")},
        ),
        "echo": Signature(
            {"text": spec("string")}, {"text": spec("string"), "text_bytes": spec("string")}
        ),
        "ratio": Signature({"x": spec("float32")}, {"y": spec("float32")}),
        "nothing": Signature({}, {"y": spec("float32")}),
        "failing": Signature({"x": spec("float32")}, {"y": spec("float32")}),
        "broken": Signature({"x": spec("float32")}, {"y": spec("float32")}),
    }

    # Bytes instead of SignatureDef messages, whose module would import TensorFlow.
    signature_defs: Mapping[str, Any] = {name: name.encode() for name in signatures}

    def __init__(self) -> None:
        self.is_closed = False
        self.timeout_ms: float | None = None
        self.has_begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.on_cancel: Callable[[], object] = lambda: None

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        self.timeout_ms = timeout_ms
        if cancellation is not None:
            cancellation.add_callback(self.on_cancel)
        assert not self.is_closed, "run after close"
        if cancellation is not None:
            cancellation.raise_if_cancelled()
        self.has_begun.set()
        assert self.gate.wait(60)
        outputs = self._run(signature_name, inputs)
        return {name: outputs[name] for name in output_names or outputs}

    def close(self) -> None:
        self.is_closed = True

    def _run(self, signature_name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if signature_name == "two":
            return {
                "sum": inputs["a"] + inputs["b"],
                "difference": inputs["a"] - inputs["b"],
            }
        if signature_name == "echo":
            return {"text": inputs["text"], "text_bytes": inputs["text"]}
        if signature_name == "ratio":
            with np.errstate(divide="ignore"):
                return {"y": np.float32(1) / inputs["x"]}
        if signature_name == "nothing":
            return {"y": np.array([7], np.float32)}
        if signature_name == "failing":
            raise ModelExecutionError("out of memory")
        if signature_name == "broken":
            raise RuntimeError("a fault that nobody has foreseen")
        return {"y": _half_plus_two(inputs["x"])}


class FakeLoader:
    """Loads a fake model for any directory, and keeps the loaded models: version → model."""

    def __init__(self) -> None:
        self.models: dict[int, FakeModel] = {}
        self.failures: dict[int, Exception] = {}
        self.model_type: type[FakeModel] = FakeModel

    def __call__(self, directory: Path) -> FakeModel:
        version = int(directory.name)
        if version in self.failures:
            raise self.failures[version]
        self.models[version] = self.model_type()
        return self.models[version]


def _half_plus_two(x: Array) -> Array:
    if x.dtype != np.float32:
        dtype: Any = "string" if x.dtype == object else x.dtype
        raise InvalidTensor(f"Expects arg[0] to be float but {dtype} is provided")
    if x.ndim > 2:
        raise InvalidTensor("input must be a vector or a matrix")
    with np.errstate(all="ignore"):
        return x / np.float32(2) + np.float32(2)
