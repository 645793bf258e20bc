"""Every kind of export keeps every promise; docs/conformance.md has a table of the results.

The last test compares the results with the table. A model that compiles for one generation counts
as compiled for all seven, unless the nightly tests, which compile for the other six, have run and
found otherwise. If the tables differ, write them again:

    TPUSERVE_WRITE_TABLES=1 .venv/bin/pytest tests/conformance/exports/test_exports.py
"""

import functools
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.exports import kinds, models, promises, table
from tests.conformance.exports.kinds import ExportedModel, Kind
from tests.conformance.exports.model import train
from tests.conformance.exports.promises import Bench, Figures
from tests.conformance.exports.table import Cell
from tpuserve.compilation.compiler import Compiler

pytestmark = pytest.mark.first

_COMMAND = "TPUSERVE_WRITE_TABLES=1 .venv/bin/pytest tests/conformance/exports/test_exports.py"
_PAIRS = [
    pytest.param(kind, name, id=f"{kind.name}-{name}".replace(" ", "_"))
    for kind in kinds.ALL
    for name in kind.models
]


class CellResults:
    """The cells of the table that this process has tested.

    Attributes:
      tested_cells: the tested cells.
      remarks: tested cell whose promise is kept → a remark, which may be empty.
    """

    def __init__(self) -> None:
        self.tested_cells: set[Cell] = set()
        self.remarks: dict[Cell, str] = {}


@pytest.fixture(scope="module")
def results() -> CellResults:
    return CellResults()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    # A second process would take longer to start than the compilations for one generation.
    with Compiler(processes=1) as compiler:
        bench = Bench(compiler)
        yield bench
        bench.close()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains a model by name, once, and returns its directory."""

    @functools.cache
    def trained(name: str) -> Path:
        directory = tmp_path_factory.mktemp("model")
        (model,) = (model for model in models.ALL if model.name == name)
        train(model, directory)
        return directory

    return trained


@pytest.fixture(scope="module")
def export(
    checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Kind, str], ExportedModel]:
    """Return a function that exports a model, once for each kind of export."""

    @functools.cache
    def version(kind_name: str, name: str) -> ExportedModel:
        (kind,) = (kind for kind in kinds.ALL if kind.name == kind_name)
        return kind.models[name](checkpoint(name), tmp_path_factory.mktemp("export"))

    return lambda kind, name: version(kind.name, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "promise",
    [
        pytest.param(name, marks=[pytest.mark.numeric] * (promise in promises.NUMERIC))
        for name, promise in promises.ALL.items()
    ],
)
@pytest.mark.parametrize(("kind", "name"), _PAIRS)
def test_a_promise_is_kept(
    kind: Kind,
    name: str,
    promise: str,
    export: Callable[[Kind, str], ExportedModel],
    bench: Bench,
    results: CellResults,
) -> None:
    cell = kind.name, name, promise
    results.tested_cells.add(cell)
    results.remarks[cell] = promises.ALL[promise](export(kind, name), bench) or ""


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "name"), _PAIRS)
def test_the_other_six_generations_compile_too(
    kind: Kind,
    name: str,
    export: Callable[[Kind, str], ExportedModel],
    bench: Bench,
    results: CellResults,
) -> None:
    cell = kind.name, name, promises.COMPILES
    # Until the other generations have compiled, the cell of the table is not kept.
    remark = results.remarks.pop(cell, None)
    promises.compiles_for(promises.OTHER_TOPOLOGIES, export(kind, name), bench)
    if remark is not None:
        results.remarks[cell] = remark


def test_each_model_is_exported_in_some_way() -> None:
    assert {model.name for model in models.ALL} == {name for _, name, _ in table.ALL}


def test_the_training_has_moved_the_averages_of_batch_norm(
    checkpoint: Callable[[str], Path],
) -> None:
    reader = tf.train.load_checkpoint(str(checkpoint(models.RESIDUAL.name)))
    names = [key for key in reader.get_variable_to_shape_map() if key.endswith("moving_mean")]
    assert len(names) == 2
    for name in names:
        assert np.abs(reader.get_tensor(name)).min() > 0


@pytest.mark.slow
def test_the_table_in_the_documents_is_what_was_found_here(
    results: CellResults, bench: Bench
) -> None:
    if results.tested_cells != table.ALL:
        pytest.skip(
            f"{len(results.tested_cells)} of {len(table.ALL)} cells were looked at in this process"
        )
    rendered = table.render(results.remarks)
    if os.environ.get("TPUSERVE_WRITE_TABLES"):
        table.write_tables(rendered)
    _print(bench.figures)
    assert table.read_tables() == rendered, f"docs/conformance.md is out of date. Run: {_COMMAND}"


def _print(figures: Figures) -> None:
    """Print the figures, which pytest shows with the option -s."""
    print(f"\nlargest difference between the metagraphs: {figures.largest_difference:.1e}")
    for topology, seconds in figures.compile_seconds.items():
        print(
            f"{topology}: {len(seconds)} compilations took {sum(seconds):.1f} s, "
            f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.1f} s"
        )
