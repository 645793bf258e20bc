"""Examines a model of the zoo: converts, inspects, verifies, compiles and serves it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.exports import served_model
from tests.zoo.zoo_model import Inputs, ZooModel
from tpuserve import tags
from tpuserve.compilation import aot
from tpuserve.compilation.compile_report import Compilation
from tpuserve.compilation.compiler import Compiler
from tpuserve.errors import TpuserveError
from tpuserve.export import convert
from tpuserve.export.conversion.conversion_report import Conversion
from tpuserve.saved_model import metagraph
from tpuserve.verification import verify

ROWS = 3
COMPILED_ROWS = 8
TOPOLOGIES = ("v5e:1x1", "v6e:1x1")
FLOAT32_TOLERANCE = 1e-4
BFLOAT16_TOLERANCE = 2e-2

STEPS = ("convert", "inspect", "float32", "bfloat16", "compile", "serve")


@dataclass
class Examination:
    """The results of examining a model.

    Attributes:
      model: The model.
      failures: Name of a failed step → why it failed.
      host_ops: Types of the ops that only the host can run, sorted.
      float32: Largest absolute difference between the outputs of both metagraphs.
      bfloat16: The same difference if the TPU metagraph computes in bfloat16.
      compilations: The compilation for each of `TOPOLOGIES`.
    """

    model: ZooModel
    failures: dict[str, str] = field(default_factory=dict)
    host_ops: tuple[str, ...] = ()
    float32: float | None = None
    bfloat16: float | None = None
    compilations: tuple[Compilation, ...] = ()


def examine(model: ZooModel, directory: Path, compiler: Compiler) -> Examination:
    """Convert a model, then inspect, verify, compile and serve the result.

    After a failed conversion nothing else runs; after any other failed step the others still run.

    Args:
      model: The model.
      directory: An empty directory to write into.
      compiler: A compiler whose context is entered.
    """
    examination = Examination(model)
    original, converted = directory / "original/1", directory / "converted/1"
    original.parent.mkdir(parents=True)
    model.write(original)
    with _step(examination, "convert"):
        examination.host_ops = _host_ops(model, convert(original, converted))
    if "convert" in examination.failures:
        return examination
    with _step(examination, "inspect"):
        _inspect(converted)
    with _step(examination, "float32"):
        examination.float32 = _verify(model, converted, FLOAT32_TOLERANCE)
    with _step(examination, "bfloat16"):
        half = directory / "half/1"
        convert(original, half, bfloat16=True)
        examination.bfloat16 = _verify(model, half, BFLOAT16_TOLERANCE)
    with _step(examination, "compile"):
        examination.compilations = _compile(model, converted, compiler)
    with _step(examination, "serve"):
        _serve(model, converted)
    return examination


@contextlib.contextmanager
def _step(examination: Examination, name: str) -> Iterator[None]:
    try:
        yield
    except (TpuserveError, AssertionError) as error:
        examination.failures[name] = str(error)


def _host_ops(model: ZooModel, conversion: Conversion) -> tuple[str, ...]:
    (signature,) = (
        signature for signature in conversion.signatures if signature.name == model.signature
    )
    assert signature.functions, f"{model.signature} stays on the host"
    return tuple(sorted({op.op for op in signature.host_ops}))


def _inspect(directory: Path) -> None:
    """Check that only the metagraph {serve, tpu} has a TPU computation."""
    described = metagraph.read_saved_model(directory).metagraphs
    on_tpu = {metagraph.tags: metagraph.has_tpu_computation for metagraph in described}
    assert on_tpu == {tags.SERVE: False, tags.SERVE_TPU: True}, on_tpu


def _verify(model: ZooModel, directory: Path, tolerance: float) -> float:
    """Compare both metagraphs on a few rows; return the largest absolute difference."""
    inputs = directory.parent / "inputs.npz"
    arrays: dict[str, Any] = {name: _plain(array) for name, array in model.inputs(ROWS).items()}
    np.savez(inputs, **arrays)
    report = verify(
        directory,
        inputs=inputs,
        signatures=[model.signature],
        atol=tolerance,
        rtol=tolerance,
        runs=0,
    )
    (signature,) = report.signatures
    assert signature.failure is None, signature.failure
    (run,) = signature.runs
    assert run.failure is None, run.failure
    largest = max((output.largest_absolute or 0.0 for output in run.outputs), default=0.0)
    differing = [output.name for output in run.outputs if not output.passed]
    assert not differing, f"{', '.join(differing)} differ, by up to {largest:.1e}"
    return largest


def _plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert strings to an array that NumPy can store without pickling."""
    return np.array(values.tolist()) if values.dtype == object else values


def _compile(model: ZooModel, directory: Path, compiler: Compiler) -> tuple[Compilation, ...]:
    report = aot.compile(
        directory,
        topologies=TOPOLOGIES,
        signature_names=[model.signature],
        batch_sizes=[COMPILED_ROWS],
        compiler=compiler,
    )
    for compilation in report.compilations:
        assert compilation.error is None, f"{compilation.topology.name}: {compilation.error}"
    return report.compilations


def _serve(model: ZooModel, directory: Path) -> None:
    """Check that each metagraph answers over REST and gRPC like {serve} in process."""
    inputs: Inputs = model.inputs(ROWS)
    baseline = served_model.load_metagraph(directory, tags.SERVE)
    try:
        expected = baseline.run(model.signature, inputs)
    finally:
        baseline.close()
    for tag_set in served_model.HARDWARE:
        with served_model.serving(directory, tag_set) as served:
            rest = served.ask_rest(model.signature, inputs, list(expected))
            rpc = served.ask_grpc(model.signature, inputs)
            for answer in (rest, rpc):
                served_model.largest_difference(expected, answer, FLOAT32_TOLERANCE)


Examine = Callable[[ZooModel], Examination]
