import json

import pytest

from tests.tpuserve.compilation.reports import (
    V4,
    V5E,
    figures,
    make_compilation,
    make_failed_compilation,
    report,
)
from tpuserve.compilation.stats import CompileTarget


def test_rows_per_second_count_all_devices_of_a_chip() -> None:
    # 8 rows in 2 ms are 4,000 rows per second on one device. A chip of v4 has two devices.
    assert make_compilation(V5E, 8, figures()).estimated_rows_per_second_per_chip == pytest.approx(
        4000
    )
    assert make_compilation(V4, 8, figures()).estimated_rows_per_second_per_chip == pytest.approx(
        8000
    )


def test_the_bound_is_the_resource_that_takes_longer_at_the_chips_peak() -> None:
    # A v5e moves 10 MB in 12.2 us, and computes 2.4 GFLOP in the same time.
    assert make_compilation(V5E, 8, figures(flops=2.3e9)).bound == "memory"
    assert make_compilation(V5E, 8, figures(flops=2.5e9)).bound == "compute"


def test_an_unknown_generation_has_no_bound() -> None:
    assert make_compilation(CompileTarget("v9:1x1", "TPU v9", 1), 8, figures()).bound is None


def test_the_memory_of_a_device_holds_arguments_results_temporaries_and_code() -> None:
    assert make_compilation(V5E, 8, figures()).hbm_bytes == 1_432_000


def test_a_report_passes_if_everything_compiles() -> None:
    assert report(make_compilation(V5E, 1, figures())).passed
    assert not report(
        make_compilation(V5E, 1, figures()), make_failed_compilation(V5E, 8, "out of memory")
    ).passed


def test_json_has_the_derived_figures() -> None:
    data = json.loads(json.dumps(report(make_compilation(V5E, 8, figures())).to_dict()))
    (compilation,) = data["compilations"]
    assert compilation["figures"]["seconds"] == 0.002
    assert compilation["estimated_rows_per_second_per_chip"] == pytest.approx(4000)
    assert data["advice"][0]["allowed_batch_sizes"] == [1, 8]
