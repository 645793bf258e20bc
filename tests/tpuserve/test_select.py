import pytest

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import MetagraphNotFound, TpuNotFound
from tpuserve.select import MetaGraphSelection, select_metagraph

NO_TPU = TpuSystem()
EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)
REAL = TpuSystem(tpu_cores=8, hosts=1)
BOTH = [tags.SERVE, tags.SERVE_TPU]


def choose(wanted: tags.TagSet | None, hardware: TpuSystem) -> tuple[tags.TagSet, str, bool]:
    choice = select_metagraph(BOTH, wanted, hardware, where="/m/1")
    return choice.tags, choice.device, choice.lowered


def test_without_a_wish_the_hardware_decides() -> None:
    assert choose(None, NO_TPU) == (tags.SERVE, "CPU", False)
    assert choose(None, EMULATED) == (tags.SERVE_TPU, "CPU", True)
    assert choose(None, REAL) == (tags.SERVE_TPU, "TPU", False)


def test_a_wish_wins_over_the_hardware() -> None:
    assert choose(tags.SERVE, REAL) == (tags.SERVE, "CPU", False)
    assert choose(tags.SERVE_TPU, EMULATED) == (tags.SERVE_TPU, "CPU", True)


def test_a_tpu_metagraph_is_never_lowered_unasked() -> None:
    with pytest.raises(TpuNotFound, match="needs a TPU; no TPU found. Set TPUSERVE_EMULATED_TPU"):
        choose(tags.SERVE_TPU, NO_TPU)


def test_tag_sets_match_exactly_and_the_error_lists_what_is_there() -> None:
    with pytest.raises(MetagraphNotFound) as error:
        select_metagraph([tags.SERVE], tags.SERVE_TPU, EMULATED, where="/m/1")
    assert "no metagraph tagged {serve, tpu} (asked for) in /m/1; found {serve}." in str(
        error.value
    )


def test_a_choice_says_what_and_why() -> None:
    choice = MetaGraphSelection(
        tags.SERVE_TPU, "CPU", lowered=True, reason="asked for; no TPU found"
    )
    assert str(choice) == "{serve, tpu} on CPU through XLA (asked for; no TPU found)"


def test_a_choice_says_when_nothing_is_compiled() -> None:
    hardware = TpuSystem(1, 1, is_emulated=True, is_compiled=False)
    choice = select_metagraph([tags.SERVE_TPU], None, hardware, where="/m/1")
    assert "{serve, tpu} on CPU op by op" in str(choice)


def test_fallback_takes_the_cpu_metagraph_and_says_what_was_wanted() -> None:
    choice = select_metagraph([tags.SERVE], None, EMULATED, where="/m/1", fallback_to_cpu=True)
    assert (choice.tags, choice.device, choice.lowered) == (tags.SERVE, "CPU", False)
    assert choice.fallback.startswith(
        "serving {serve} on the CPU instead: no metagraph tagged {serve, tpu} (by default) in /m/1"
    )


def test_fallback_serves_where_there_is_no_tpu() -> None:
    choice = select_metagraph(BOTH, tags.SERVE_TPU, NO_TPU, where="/m/1", fallback_to_cpu=True)
    assert choice.tags == tags.SERVE
    assert "needs a TPU; no TPU found" in choice.fallback


def test_nothing_falls_back_where_the_wanted_metagraph_is_there() -> None:
    choice = select_metagraph(BOTH, None, EMULATED, where="/m/1", fallback_to_cpu=True)
    assert (choice.tags, choice.fallback) == (tags.SERVE_TPU, "")


def test_nothing_to_fall_back_to_is_the_original_error() -> None:
    with pytest.raises(MetagraphNotFound, match="no metagraph tagged {serve}"):
        select_metagraph([tags.SERVE_TPU], tags.SERVE, NO_TPU, where="/m/1", fallback_to_cpu=True)
