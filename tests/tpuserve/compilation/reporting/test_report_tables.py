import io

import pytest
from rich.console import Console

from tests.tpuserve.compilation.reports import V4, V5E, compiled, figures, refused, report
from tpuserve.compilation.reporting import report_tables
from tpuserve.compilation.reporting.advice import BucketPlan
from tpuserve.compilation.reporting.report import Compilation, CompileAdvice, CompileReport
from tpuserve.compilation.stats import CompileTarget


def printed(found: CompileReport, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    report_tables.print_report(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_has_estimates_and_memory_and_fits_80_columns() -> None:
    text = printed(report(compiled(V4, 8, figures())))
    (row,) = (line for line in text.splitlines() if line.startswith("v4:2x2x1"))
    assert row.split() == ["v4:2x2x1", "8", "2ms", "8k", "memory", "1G", "10M", "1M", "30k", "400k"]
    assert "Nothing has run." in text


def test_no_number_is_truncated_on_a_narrow_terminal() -> None:
    found = report(compiled(V4, 65536, figures()), refused(V5E, 65536, "no HBM left"))
    text = " ".join(printed(found, width=40).split())
    assert "v4:2x2x1 65536 2ms 65.5M memory 1G 10M 1M 30k 400k" in text
    assert "v5e:1x1 65536 fails" in text


def test_a_time_without_some_operations_is_marked() -> None:
    text = printed(report(compiled(V5E, 8, figures(untimed=1))))
    assert ">2ms" in text
    assert "has no time estimate" in text


def test_an_error_is_printed_once_for_all_topologies_and_sizes() -> None:
    text = printed(report(refused(V4, 8, "no HBM\nleft"), refused(V5E, 8, "no HBM\nleft")))
    assert "v4:2x2x1 at batch size 8, v5e:1x1 at batch size 8: no HBM left" in text
    assert "Nothing has run." not in text


def advised(*compilations: Compilation) -> str:
    """The text of a report whose advice names no chip."""
    advice = CompileAdvice("serving_default", None, None)
    return printed(CompileReport("/models/m/1", None, compilations, (advice,)), width=200)


def test_a_chip_of_an_unknown_generation_is_not_recommended() -> None:
    text = advised(compiled(CompileTarget("v9:1x1", "TPU v9", 1), 8, figures()))
    assert (
        "no chip recommendation: 'v9:1x1' is not one of the known generations "
        "(v2 v3 v4 v5e v5p v6e tpu7x)\n"
    ) in text


def test_a_chip_that_does_not_compile_everything_is_not_recommended() -> None:
    text = advised(refused(V5E, 8, "no HBM"))
    assert "no chip recommendation: no topology compiles every batch size\n" in text


def test_the_request_mix_is_printed_as_the_option_takes_it() -> None:
    advice = CompileAdvice("serving_default", BucketPlan((1, 8), 0.25), "v5e:1x1")
    mix = {8: 1.0, 1: 2.5}
    found = CompileReport("/m/1", mix, (compiled(V5E, 8, figures()),), (advice,))
    assert "[1, 8] (25% padding for the request mix --load 1:2.5 8:1)" in printed(found, width=200)


def test_advice_and_notes_are_printed() -> None:
    text = printed(report(compiled(V5E, 8, figures())))
    assert "smallest chip that fits: v5e:1x1" in text
    assert "recommended allowed_batch_sizes: [1, 8] (25% padding if all" in " ".join(text.split())
    assert "note: a note" in text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (999.9, "1k"), (1234567, "1.23M"), (5e18, "5e+03P")],
)
def test_quantities_have_three_figures(number: float, text: str) -> None:
    assert report_tables.format_quantity(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(2.5, "2.5s"), (0.00123, "1.23ms"), (1.5e-5, "15us"), (3e-10, "0.3ns")]
)
def test_times_have_three_figures(number: float, text: str) -> None:
    assert report_tables.format_seconds(number) == text
