"""The promises about every export: a function for each, which raises if the promise is broken."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.exports import served_model
from tests.conformance.exports.kinds import ExportedModel
from tpuserve import tags
from tpuserve.compilation import aot
from tpuserve.compilation.chips import DEFAULT_TOPOLOGIES
from tpuserve.compilation.compiler import Compiler
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1

# The rows of a request whose batch a BatchFunction has to pad, because 3 is no allowed size.
FEW_ROWS = 3

COMPILES = "compiles for all seven generations"
# Every run compiles for this chip, and a nightly test for the chips of the other generations.
FIRST_TOPOLOGY = "v5e:1x1"
OTHER_TOPOLOGIES = tuple(name for name in DEFAULT_TOPOLOGIES if name != FIRST_TOPOLOGY)


@dataclass
class Figures:
    """Figures that the checks of the promises measure.

    Attributes:
      largest_difference: the largest absolute difference between the answers of the two
        metagraphs.
      compile_seconds: topology → the seconds of each compilation.
    """

    largest_difference: float = 0.0
    compile_seconds: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """Objects that the checks of all promises share.

    Attributes:
      compiler: a `Compiler` whose context is entered.
      figures: the figures measured so far.
    """

    compiler: Compiler
    figures: Figures = field(default_factory=Figures)
    _loaded: dict[tuple[Path, tags.TagSet], LoadedModel] = field(default_factory=dict)

    def load(self, exported: ExportedModel, tag_set: tags.TagSet) -> LoadedModel:
        """Load a metagraph once; the metagraphs of the export before are closed."""
        key = exported.directory, tag_set
        if key not in self._loaded:
            if any(directory != exported.directory for directory, _ in self._loaded):
                self.close()
            self._loaded[key] = served_model.load_metagraph(*key)
        return self._loaded[key]

    def hand_over(self, exported: ExportedModel, tag_set: tags.TagSet) -> LoadedModel:
        """Load a metagraph that the caller closes."""
        self.load(exported, tag_set)
        return self._loaded.pop((exported.directory, tag_set))

    def close(self) -> None:
        """Close all metagraphs."""
        while self._loaded:
            self._loaded.popitem()[1].close()


def loads(exported: ExportedModel, bench: Bench) -> None:
    """Check that TensorFlow's loader and ours find each metagraph by its exact tags."""
    described = [
        {name: _client_view(signature) for name, signature in graph.signatures.items()}
        for graph in metagraph.read_saved_model(exported.directory).metagraphs
    ]
    assert len(described) == len(served_model.HARDWARE)
    assert all(signatures == described[0] for signatures in described)
    assert described[0].keys() == exported.requests.keys()
    for tag_set in served_model.HARDWARE:
        _load_by_tensorflow(exported.directory, sorted(tag_set), set(described[0]))
        model = bench.load(exported, tag_set)
        assert model.choice.tags == tag_set
        assert {
            name: _client_view(signature) for name, signature in model.signatures.items()
        } == described[0]
    with pytest.raises(RuntimeError, match="could not be found in SavedModel"):
        _load_by_tensorflow(exported.directory, ["tpu"], set())


def _client_view(signature: Any) -> Any:
    """Return the parts of a signature that clients see: aliases, dtypes and shapes."""
    return [
        {alias: (spec.dtype, spec.shape) for alias, spec in tensors.items()}
        for tensors in (signature.inputs, signature.outputs)
    ]


def _load_by_tensorflow(directory: Path, tag_list: list[str], names: set[str]) -> None:
    """Load a metagraph with its variables and tables, as TensorFlow Serving does."""
    # Place only the ops that run: without this option, TensorFlow requires a kernel for every op of
    # the graph, and TPU ops have none here.
    config = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        loaded = v1.saved_model.loader.load(session, tag_list, str(directory))
        served = {
            name
            for name, signature in loaded.signature_def.items()
            if signature.method_name.startswith("tensorflow/serving/")
        }
        assert served == names
        # Find the variables by their ops, because exports of Keras models and functions have no
        # collection of variables.
        handles = [
            operation
            for operation in session.graph.get_operations()
            if operation.type == "VarHandleOp"
        ]
        are_there = [
            tf.raw_ops.VarIsInitializedOp(resource=handle.outputs[0]) for handle in handles
        ]
        assert are_there
        assert all(session.run(are_there))


def answers_alike(exported: ExportedModel, bench: Bench) -> None:
    """Check that the lowered TPU metagraph, compiled by XLA, answers like the CPU metagraph."""
    is_batched = len(exported.batch_sizes) > 1
    cpu, tpu = bench.load(exported, tags.SERVE), bench.load(exported, tags.SERVE_TPU)
    assert tpu.choice.lowered
    assert tpu.choice.compiled
    for name, inputs in exported.requests.items():
        for request in [inputs, _few(inputs)] if is_batched else [inputs]:
            difference = served_model.largest_difference(
                cpu.run(name, request), tpu.run(name, request)
            )
            bench.figures.largest_difference = max(bench.figures.largest_difference, difference)


def answers_alike_on_pjrt(exported: ExportedModel, bench: Bench) -> None:
    """Check that the TPU metagraph answers like the CPU metagraph on jax's CPU device."""
    pytest.importorskip("jax")
    is_batched = len(exported.batch_sizes) > 1
    device = TpuSystem(tpu_cores=1, hosts=1, pjrt_platform="cpu")
    model = loader.load(exported.directory, tags.SERVE_TPU, device)
    try:
        assert model.choice.runtime == "pjrt"
        cpu = bench.load(exported, tags.SERVE)
        for name, inputs in exported.requests.items():
            for request in [inputs, _few(inputs)] if is_batched else [inputs]:
                served_model.largest_difference(cpu.run(name, request), model.run(name, request))
    finally:
        model.close()


def answers_alike_through_xla(exported: ExportedModel, bench: Bench) -> str:
    """Check that the CPU metagraph gives the same answers in the runtimes "xla" and "session".

    Returns:
      "" if XLA runs the model, "TensorFlow" if the runtime "xla" falls back to a session.
    """
    pytest.importorskip("jax")
    model = loader.load(exported.directory, tags.SERVE, TpuSystem(), runtime="xla")
    try:
        cpu = bench.load(exported, tags.SERVE)
        for name, inputs in exported.requests.items():
            served_model.largest_difference(cpu.run(name, inputs), model.run(name, inputs))
        if model.choice.runtime == "xla":
            return ""
        assert "because XLA cannot" in model.choice.fallback
        return "TensorFlow"
    finally:
        model.close()


def compiles(exported: ExportedModel, bench: Bench) -> None:
    """Check that libtpu compiles every signature at every batch size for one generation."""
    compiles_for([FIRST_TOPOLOGY], exported, bench)


def compiles_for(topologies: Sequence[str], exported: ExportedModel, bench: Bench) -> None:
    """Check that libtpu compiles every signature at every batch size for these topologies."""
    report = aot.compile(
        exported.directory,
        topologies=topologies,
        batch_sizes=exported.batch_sizes,
        compiler=bench.compiler,
    )
    assert [compilation.error for compilation in report.compilations if compilation.error] == []
    cases = {
        (compilation.signature, compilation.batch_size, compilation.topology.name)
        for compilation in report.compilations
    }
    assert cases == {
        (name, size, topology)
        for name in exported.requests
        for size in exported.batch_sizes
        for topology in topologies
    }
    durations: set[tuple[str, float]] = set()
    for compilation in report.compilations:
        assert compilation.computations > 0
        assert compilation.stats is not None
        # Count a compilation once if several signatures share the computation.
        durations.add((compilation.topology.name, compilation.stats.compile_seconds))
    for topology, seconds in durations:
        bench.figures.compile_seconds.setdefault(topology, []).append(seconds)


def serves(exported: ExportedModel, bench: Bench) -> None:
    """Check that a server answers over REST and gRPC like the model in process."""
    for tag_set in served_model.HARDWARE:
        with served_model.serving(
            exported.directory, tag_set, lambda _, tag_set: bench.hand_over(exported, tag_set)
        ) as served:
            assert served.model.choice.tags == tag_set
            for name, inputs in exported.requests.items():
                expected = served.model.run(name, inputs)
                rest = served.ask_rest(name, inputs, list(expected))
                served_model.largest_difference(expected, rest)
                served_model.largest_difference(expected, served.ask_grpc(name, inputs))


def _few(inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: array[:FEW_ROWS] for name, array in inputs.items()}


# Name of a promise → function that checks it, and may return a remark for the table.
ALL: Mapping[str, Callable[[ExportedModel, Bench], str | None]] = {
    "loads with each tag set": loads,
    "CPU = lowered TPU": answers_alike,
    "CPU = TPU on PJRT": answers_alike_on_pjrt,
    "CPU = CPU through the engine xla": answers_alike_through_xla,
    COMPILES: compiles,
    "round trip through the server": serves,
}

# The promises whose checks compare floats of two runtimes, which compute them differently.
NUMERIC = (answers_alike, answers_alike_on_pjrt, answers_alike_through_xla)
