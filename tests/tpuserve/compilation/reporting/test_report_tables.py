import io

import pytest
from rich.console import Console

from tests.tpuserve.compilation.reports import (
    V4,
    V5E,
    figures,
    make_compilation,
    make_failed_compilation,
    report,
)
from tpuserve.compilation import report_tables
from tpuserve.compilation.aot import pick_for_latency
from tpuserve.compilation.compile_report import (
    BucketPlan,
    Compilation,
    CompileAdvice,
    CompileReport,
)
from tpuserve.compilation.stats import CompileTarget


def print_to_text(compile_report: CompileReport, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    report_tables.print_report(compile_report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_has_estimates_and_memory_and_fits_80_columns() -> None:
    text = print_to_text(report(make_compilation(V4, 8, figures())))
    (row,) = (line for line in text.splitlines() if line.startswith("v4:2x2x1"))
    # Each of the two devices of a chip needs 1 MB for arguments, 2 kB for outputs, 30 kB of
    # temporary memory and 400 kB for the program: 2.86 MB for the chip.
    memory = ["1M", "2.86M/32G", "<1%"]
    assert row.split() == ["v4:2x2x1", "8", "2ms", "8k", "memory", "1G", "10M", *memory]
    assert "Nothing has run on a TPU." in text


def test_no_number_is_truncated_on_a_narrow_terminal() -> None:
    compile_report = report(
        make_compilation(V4, 65536, figures()), make_failed_compilation(V5E, 65536, "no HBM left")
    )
    text = " ".join(print_to_text(compile_report, width=40).split())
    assert "v4:2x2x1 65536 2ms 65.5M memory 1G 10M 1M 2.86M/32G <1%" in text
    assert "v5e:1x1 65536 fails" in text


def test_a_time_without_some_operations_is_marked() -> None:
    text = print_to_text(report(make_compilation(V5E, 8, figures(untimed=1))))
    assert ">2ms" in text
    assert "has no time estimate" in text


def test_an_error_is_printed_once_for_all_topologies_and_sizes() -> None:
    text = print_to_text(
        report(
            make_failed_compilation(V4, 8, "no HBM\nleft"),
            make_failed_compilation(V5E, 8, "no HBM\nleft"),
        )
    )
    assert "v4:2x2x1 at batch size 8, v5e:1x1 at batch size 8: no HBM left" in text
    assert "Nothing has run on a TPU." not in text


def print_advice(*compilations: Compilation) -> str:
    """Return the printed text of a report whose advice names no chip."""
    advice = CompileAdvice("serving_default", None, None)
    return print_to_text(CompileReport("/models/m/1", None, compilations, (advice,)), width=200)


def test_a_chip_of_an_unknown_generation_is_not_recommended() -> None:
    text = print_advice(make_compilation(CompileTarget("v9:1x1", "TPU v9", 1), 8, figures()))
    assert (
        "no chip recommendation: 'v9:1x1' is not one of the known generations "
        "(v2 v3 v4 v5e v5p v6e tpu7x)\n"
    ) in text


def test_a_chip_that_does_not_compile_everything_is_not_recommended() -> None:
    text = print_advice(make_failed_compilation(V5E, 8, "no HBM"))
    assert "no chip recommendation: no topology compiles every batch size\n" in text


def print_with_goal(goal_seconds: float) -> str:
    """Return the printed report of a model with a latency goal.

    On a v5e, a batch of 8 rows takes 2 ms and a batch of 64 rows 20 ms; on a v4, 64 rows take 2 ms.
    """
    compilations = [
        make_compilation(V5E, 8, figures()),
        make_compilation(V5E, 64, figures(seconds=0.02)),
        make_compilation(V4, 64, figures()),
    ]
    advice = CompileAdvice(
        "serving_default", None, None, pick_for_latency(compilations, goal_seconds)
    )
    return print_to_text(CompileReport("/m/1", None, tuple(compilations), (advice,)), width=200)


def test_pick_for_a_latency_goal_is_called_an_estimate() -> None:
    assert (
        "within 10ms: v5e:1x1 up to batch size 8 (estimated 2ms). This is the compiler's estimate "
        "for a batch on the TPU alone, and no p99"
    ) in print_with_goal(0.01)
    assert "within 30ms: v5e:1x1 up to batch size 64 (estimated 20ms)" in print_with_goal(0.03)
    assert "within 1ms: no compiled chip and batch size." in print_with_goal(0.001)


def test_estimate_that_leaves_out_operations_is_not_picked() -> None:
    pick = pick_for_latency([make_compilation(V5E, 8, figures(untimed=1))], 1.0)
    assert pick.to_dict() == {
        "goal_seconds": 1.0,
        "topology": None,
        "batch_size": None,
        "estimated_seconds": None,
    }


def test_the_request_mix_is_printed_as_the_option_takes_it() -> None:
    advice = CompileAdvice("serving_default", BucketPlan((1, 8), 0.25), "v5e:1x1")
    mix = {8: 1.0, 1: 2.5}
    compile_report = CompileReport("/m/1", mix, (make_compilation(V5E, 8, figures()),), (advice,))
    assert "[1, 8] (25% padding for the request mix --load 1:2.5 8:1)" in print_to_text(
        compile_report, width=200
    )


def test_advice_and_notes_are_printed() -> None:
    text = print_to_text(report(make_compilation(V5E, 8, figures())))
    assert (
        "smallest chip that fits: v5e:1x1 (1.43M/16G <1% of its memory at batch size 8, the "
        "largest that was compiled; other models on the chip need memory too)"
    ) in text
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
