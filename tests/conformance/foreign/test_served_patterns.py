"""Patterns of other people's graphs behind REST and gRPC, all in one server for each metagraph."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import models
from tests.conformance.exports import served_model
from tests.conformance.exports.served_model import ServedModel
from tests.conformance.foreign import graph_patterns, jax_models
from tests.conformance.foreign.graph_patterns import PATTERNS, SPEC, X
from tpuserve import tags
from tpuserve.export import SavedModelWriter, convert, export

SIGNATURE = "serving_default"
EXAMPLES = [graph_patterns.example(text) for text in (b"good good film", b"bad")]


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A model with both metagraphs, a request and its answer."""

    write: Callable[[Path], Any]
    inputs: Mapping[str, np.ndarray[Any, Any]]
    outputs: Mapping[str, Any]


def make_exporter(make: Callable[[], Any]) -> Callable[[Path], Any]:
    return lambda base: export(make(), {"x": SPEC}, base)


def make_converter(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """A model with {serve} alone, which becomes one with both metagraphs."""

    def write_both(base: Path) -> None:
        write(base / "original/1")
        convert(base / "original/1", base / "1")

    return write_both


def version_1(build: Callable[[], Any]) -> Callable[[Path], Any]:
    return make_converter(lambda directory: graph_patterns.write_version_1(directory.parent, build))


def tpu_graph_under_serve(base: Path) -> None:
    graph = models.metagraph(models.half_plus_two, tags.SERVE_TPU)
    with SavedModelWriter(str(base)) as writer:
        writer.add(graph)
        writer.add(dataclasses.replace(graph, tags=tags.SERVE))


SERVED = {
    **{
        name.replace(" ", "_"): Pattern(make_exporter(make), {"x": X}, {"y": expected})
        for name, (make, expected) in PATTERNS.items()
    },
    "control_flow_of_version_1": Pattern(
        # The sum 12 becomes 192 by four doublings.
        version_1(graph_patterns.switch_and_merge),
        {"x": X},
        {"y": 16 * X},
    ),
    "strings_tables_and_examples": Pattern(
        version_1(graph_patterns.strings_tables_and_examples),
        {"examples": np.array(EXAMPLES, object)},
        {"score": np.array([2, -1]), "text": np.array([b"2", b"-1"], object)},
    ),
    "ragged_input": Pattern(
        make_converter(graph_patterns.write_ragged_input),
        graph_patterns.RAGGED_PARTS,
        {"y": np.array([3, 3], np.float32)},
    ),
    "tpu_graph_under_serve": Pattern(
        tpu_graph_under_serve,
        {"x": np.array([[1], [5]], np.float32)},
        {"y": np.array([[2.5], [4.5]], np.float32)},
    ),
    "module_of_jax": Pattern(
        lambda base: jax_models.export_function(base, ["cpu", "tpu"]),
        # 1 1 1 times the weights: the sums of their columns.
        {"x": np.ones([2, 3], np.float32)},
        {"y": np.array([[9, 12], [9, 12]], np.float32)},
    ),
}


@pytest.fixture(scope="module")
def base_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("jax.experimental.jax2tf")
    directory = tmp_path_factory.mktemp("patterns")
    for name, pattern in SERVED.items():
        (directory / name).mkdir()
        pattern.write(directory / name)
    return {name: directory / name for name in SERVED}


@pytest.fixture(scope="module", params=served_model.HARDWARE, ids=tags.format_tags)
def served_models(
    base_paths: dict[str, Path],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, ServedModel]]:
    config = tmp_path_factory.mktemp("config") / "models.config"
    with served_model.serving_all(base_paths, config, request.param) as by_name:
        yield by_name


@pytest.mark.slow
def test_every_pattern_is_served_over_rest(served_models: dict[str, ServedModel]) -> None:
    for name, pattern in SERVED.items():
        answer = served_models[name].ask_rest(SIGNATURE, pattern.inputs, list(pattern.outputs))
        assert served_model.largest_difference(pattern.outputs, answer) == 0, name


def test_every_pattern_is_served_over_grpc(served_models: dict[str, ServedModel]) -> None:
    for name, pattern in SERVED.items():
        answer = served_models[name].ask_grpc(SIGNATURE, pattern.inputs)
        assert served_model.largest_difference(pattern.outputs, answer) == 0, name
