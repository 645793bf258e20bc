"""The selection of a metagraph: by tag set, by hardware, with a fallback, and with its reasons."""

from dataclasses import FrozenInstanceError

import pytest

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import MetagraphNotFound, TpuNotFound
from tpuserve.select import MetaGraphSelection, check_tags, select_metagraph

NO_TPU = TpuSystem()
EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)
REAL = TpuSystem(tpu_cores=8, hosts=1)
PJRT = TpuSystem(tpu_cores=1, hosts=1, pjrt_platform="tpu")
BOTH = [tags.SERVE, tags.SERVE_TPU]


def choose(requested: tags.TagSet | None, hardware: TpuSystem) -> tuple[tags.TagSet, str, bool]:
    choice = select_metagraph(BOTH, requested, hardware, where="/m/1")
    return choice.tags, choice.device, choice.lowered


def test_hardware_decides_if_no_tag_set_is_requested() -> None:
    assert choose(None, NO_TPU) == (tags.SERVE, "CPU", False)
    assert choose(None, EMULATED) == (tags.SERVE_TPU, "CPU", True)
    assert choose(None, REAL) == (tags.SERVE_TPU, "TPU", False)


def test_requested_tag_set_overrides_the_hardware() -> None:
    assert choose(tags.SERVE, REAL) == (tags.SERVE, "CPU", False)
    assert choose(tags.SERVE_TPU, EMULATED) == (tags.SERVE_TPU, "CPU", True)


def test_tpu_metagraph_is_not_lowered_without_an_emulated_tpu() -> None:
    with pytest.raises(TpuNotFound, match="needs a TPU; no TPU found. Set TPUSERVE_EMULATED_TPU"):
        choose(tags.SERVE_TPU, NO_TPU)


def test_tag_sets_match_exactly_and_the_error_lists_the_available_ones() -> None:
    with pytest.raises(MetagraphNotFound) as error:
        select_metagraph([tags.SERVE], tags.SERVE_TPU, EMULATED, where="/m/1")
    assert "no metagraph tagged {serve, tpu} (asked for) in /m/1; found {serve}." in str(
        error.value
    )


def test_text_of_a_lowered_selection_names_xla_and_the_reason() -> None:
    choice = MetaGraphSelection(
        tags.SERVE_TPU, "CPU", lowered=True, reason="asked for; no TPU found"
    )
    assert str(choice) == "{serve, tpu} on CPU through XLA (asked for; no TPU found)"


def test_text_of_a_selection_that_is_not_lowered_does_not_name_xla() -> None:
    assert str(select_metagraph(BOTH, None, NO_TPU, where="/m/1")) == (
        "{serve} on CPU (by default; no TPU found)"
    )
    assert str(select_metagraph(BOTH, None, REAL, where="/m/1")) == (
        "{serve, tpu} on TPU (by default; 8 TPU cores found)"
    )


def test_text_of_a_selection_without_compilation_says_op_by_op() -> None:
    hardware = TpuSystem(1, 1, is_emulated=True, is_compiled=False)
    choice = select_metagraph([tags.SERVE_TPU], None, hardware, where="/m/1")
    assert "{serve, tpu} on CPU op by op" in str(choice)


def test_fallback_selects_the_cpu_metagraph_and_reports_the_missing_one() -> None:
    choice = select_metagraph([tags.SERVE], None, EMULATED, where="/m/1", fallback_to_cpu=True)
    assert (choice.tags, choice.device, choice.lowered) == (tags.SERVE, "CPU", False)
    assert choice.fallback.startswith(
        "serving {serve} on the CPU instead: no metagraph tagged {serve, tpu} (by default) in /m/1"
    )


def test_fallback_applies_on_a_machine_without_a_tpu() -> None:
    choice = select_metagraph(BOTH, tags.SERVE_TPU, NO_TPU, where="/m/1", fallback_to_cpu=True)
    assert choice.tags == tags.SERVE
    assert "needs a TPU; no TPU found" in choice.fallback


def test_fallback_does_not_apply_if_the_metagraph_can_run() -> None:
    choice = select_metagraph(BOTH, None, EMULATED, where="/m/1", fallback_to_cpu=True)
    assert (choice.tags, choice.fallback) == (tags.SERVE_TPU, "")


def test_error_is_unchanged_if_there_is_no_metagraph_to_fall_back_to() -> None:
    with pytest.raises(MetagraphNotFound, match="no metagraph tagged {serve}"):
        select_metagraph([tags.SERVE_TPU], tags.SERVE, NO_TPU, where="/m/1", fallback_to_cpu=True)


def test_runtime_is_the_session_by_default() -> None:
    choice = select_metagraph(BOTH, None, NO_TPU, where="/m/1")
    assert (choice.runtime, choice.runtime_reason) == ("session", "by default")


@pytest.mark.parametrize("runtime", ["pjrt", "tflite", "xnnpack"])
def test_requested_runtime_is_selected_and_named_in_the_text(runtime: str) -> None:
    choice = select_metagraph(BOTH, None, EMULATED, where="/m/1", runtime=runtime)
    assert (choice.runtime, choice.runtime_reason) == (runtime, "asked for")
    assert str(choice) == (
        f"{{serve, tpu}} on CPU through XLA with the {runtime} runtime, asked for "
        "(by default; emulated TPU of 1 core, from TPUSERVE_EMULATED_TPU)"
    )


def test_selection_cannot_be_changed() -> None:
    choice = select_metagraph(BOTH, None, NO_TPU, where="/m/1")
    with pytest.raises(FrozenInstanceError):
        choice.device = "TPU"  # type: ignore[misc]


def test_requested_tags_that_are_missing_name_the_flag_of_those_that_are_there() -> None:
    with pytest.raises(MetagraphNotFound) as error:
        select_metagraph([frozenset({"transform"})], None, NO_TPU, where="/m/1")
    assert str(error.value) == (
        "no metagraph tagged {serve} (by default) in /m/1; found {transform}. Export with those "
        "tags, or ask for a tag set that is there (of a server: --saved_model_tags=transform)."
    )


def choose_untagged(
    available: list[tags.TagSet],
    requested: tags.TagSet | None,
    hardware: TpuSystem,
    runtime: str | None = None,
) -> MetaGraphSelection:
    """Select from metagraphs of which {serve} has a TPU computation."""
    return select_metagraph(
        available,
        requested,
        hardware,
        where="/m/1",
        untagged_tpu_graphs=[tags.SERVE],
        runtime=runtime,
    )


def test_tpu_graph_under_serve_is_lowered_op_by_op_without_a_tpu() -> None:
    choice = choose_untagged(BOTH, None, NO_TPU)
    assert (choice.tags, choice.lowered, choice.compiled) == (tags.SERVE, True, False)
    assert str(choice) == (
        "{serve} on CPU op by op (by default; no TPU found; its TPU computations are lowered)"
    )


def test_tpu_graph_under_serve_runs_on_the_tpu_that_is_there() -> None:
    on_tpu = choose_untagged(BOTH, tags.SERVE, REAL)
    assert (on_tpu.tags, on_tpu.device, on_tpu.lowered) == (tags.SERVE, "TPU", False)
    emulated = choose_untagged(BOTH, tags.SERVE, EMULATED)
    assert (emulated.device, emulated.lowered, emulated.compiled) == ("CPU", True, True)
    assert choose_untagged([tags.SERVE], None, REAL).device == "TPU"
    assert choose_untagged(BOTH, None, REAL).tags == tags.SERVE_TPU


def test_fallback_to_a_tpu_graph_under_serve_is_lowered() -> None:
    choice = select_metagraph(
        BOTH,
        tags.SERVE_TPU,
        NO_TPU,
        where="/m/1",
        untagged_tpu_graphs=[tags.SERVE],
        fallback_to_cpu=True,
    )
    assert (choice.tags, choice.lowered) == (tags.SERVE, True)
    assert "needs a TPU" in choice.fallback


def test_xla_engine_compiles_a_tpu_graph_under_serve() -> None:
    choice = choose_untagged([tags.SERVE], None, NO_TPU, runtime="xla")
    assert (choice.lowered, choice.compiled, choice.runtime) == (True, True, "session")


@pytest.mark.parametrize(
    ("hardware", "where"),
    [
        (EMULATED, "CPU through XLA with the session runtime"),
        (REAL, "TPU with the session runtime"),
        (PJRT, "TPU with the pjrt runtime"),
    ],
)
def test_text_says_why_another_runtime_than_the_requested_xla_runs_a_tpu_graph(
    hardware: TpuSystem, where: str
) -> None:
    choice = select_metagraph(BOTH, None, hardware, where="/m/1", runtime="xla")
    assert str(choice) == (
        f"{{serve, tpu}} on {where}, because the xla runtime, asked for, runs only CPU graphs and "
        f"this is a TPU graph (by default; {hardware})"
    )


def test_selection_says_whether_it_is_a_tpu_graph() -> None:
    for hardware in (EMULATED, REAL, PJRT):
        assert select_metagraph(BOTH, None, hardware, where="/m/1").is_tpu_graph
    assert not select_metagraph(BOTH, tags.SERVE, REAL, where="/m/1").is_tpu_graph
    assert not MetaGraphSelection(tags.SERVE, "CPU", lowered=False, reason="").is_tpu_graph


def test_pjrt_devices_run_the_tpu_graph_as_it_is() -> None:
    choice = select_metagraph(BOTH, None, PJRT, where="/m/1")
    assert (choice.device, choice.lowered, choice.runtime) == ("TPU", False, "pjrt")
    assert choice.runtime_reason == "which runs PJRT devices"


@pytest.mark.parametrize("available", [[tags.SERVE], [tags.SERVE_TPU], BOTH])
def test_tags_are_found_if_a_machine_with_or_without_a_tpu_would_find_them(
    available: list[tags.TagSet],
) -> None:
    check_tags(available, None, None, where="/m/1")


def test_tags_that_no_machine_finds_are_an_error() -> None:
    with pytest.raises(MetagraphNotFound, match=r"{serve, tpu} \(asked for\) in /m/1"):
        check_tags([tags.SERVE], tags.SERVE_TPU, None, where="/m/1")


def test_tags_for_an_emulated_tpu_are_those_of_a_tpu_unless_there_is_a_fallback() -> None:
    with pytest.raises(MetagraphNotFound, match=r"{serve, tpu} \(by default\) in /m/1"):
        check_tags([tags.SERVE], None, EMULATED, where="/m/1")
    check_tags([tags.SERVE], None, EMULATED, where="/m/1", fallback_to_cpu=True)
