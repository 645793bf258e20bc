from pathlib import Path

import pytest

from tests.tpuserve.compilation.reports import (
    V4,
    V5E,
    figures,
    make_compilation,
    make_failed_compilation,
    report,
)
from tpuserve.compilation.compile_report import Compilation
from tpuserve.compilation.plot import plot


def test_a_plot_has_a_line_for_each_topology_and_says_that_it_shows_estimates(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plot.svg"
    compile_report = report(
        *(
            make_compilation(topology, rows, figures(seconds=rows / 1000))
            for topology in (V4, V5E)
            for rows in (1, 8)
        ),
        make_failed_compilation(V5E, 64, "out of memory"),
    )
    plot(compile_report, path)
    text = path.read_text()
    # Matplotlib draws text as paths, and writes the text itself into comments of the SVG file.
    assert "<!-- v4:2x2x1 -->" in text
    assert "<!-- v5e:1x1 (1 missing) -->" in text
    assert "<!-- Estimates of the TPU compiler, for the TPU alone; nothing has run -->" in text
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "compilation",
    [make_failed_compilation(V5E, 8, "no HBM"), make_compilation(V5E, 8, figures(seconds=0))],
)
def test_a_plot_without_estimates_says_so(tmp_path: Path, compilation: Compilation) -> None:
    plot(report(compilation), tmp_path / "plot.svg")
    assert "<!-- no estimate -->" in (tmp_path / "plot.svg").read_text()
