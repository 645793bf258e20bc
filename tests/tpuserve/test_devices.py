import pytest

import tpuserve
from tpuserve.devices import TpuSystem, find_tpu_system
from tpuserve.errors import InvalidSetting


@pytest.mark.parametrize(
    ("asked", "cores", "hosts"), [("1", 1, 1), ("8", 8, 1), ("2x4", 8, 2), (" 4x2 ", 8, 4)]
)
def test_emulation_takes_cores_or_hosts_by_cores(asked: str, cores: int, hosts: int) -> None:
    found = find_tpu_system({"TPUSERVE_EMULATED_TPU": asked})
    assert found == TpuSystem(tpu_cores=cores, hosts=hosts, is_emulated=True)


@pytest.mark.parametrize("asked", ["yes", "-1", "0x4", "2x", "x2", "1.5"])
def test_a_topology_that_is_none_is_an_error_that_shows_it(asked: str) -> None:
    with pytest.raises(InvalidSetting, match="TPUSERVE_EMULATED_TPU='.*' is no TPU topology"):
        find_tpu_system({"TPUSERVE_EMULATED_TPU": asked})


@pytest.mark.slow
@pytest.mark.parametrize("environ", [{}, {"TPUSERVE_EMULATED_TPU": ""}])
def test_emulation_is_never_chosen_by_itself(environ: dict[str, str]) -> None:
    assert find_tpu_system(environ) == TpuSystem(tpu_cores=0, hosts=0, is_emulated=False)


def test_hardware_says_what_it_is() -> None:
    assert str(TpuSystem()) == "no TPU found"
    assert str(TpuSystem(4, 1)) == "4 TPU cores found"
    assert str(TpuSystem(8, 2, is_emulated=True)).startswith("emulated TPU of 8 cores on 2 hosts")


def test_a_process_can_ask_for_emulation_until_a_block_ends() -> None:
    asked_by_environment = {"TPUSERVE_EMULATED_TPU": "4"}
    with tpuserve.emulated_tpu(cores=8, hosts=2, compiled=False):
        found = find_tpu_system(asked_by_environment)
    assert (found.tpu_cores, found.hosts, found.is_compiled) == (8, 2, False)
    assert find_tpu_system(asked_by_environment).tpu_cores == 4


@pytest.mark.parametrize(("cores", "hosts"), [(0, 1), (8, 0), (8, 3)])
def test_cores_must_divide_among_hosts(cores: int, hosts: int) -> None:
    with pytest.raises(InvalidSetting, match=f"cores={cores} and hosts={hosts}"):
        tpuserve.emulated_tpu(cores=cores, hosts=hosts)


@pytest.mark.parametrize(("value", "is_compiled"), [("", True), ("1", True), ("0", False)])
def test_the_environment_can_turn_compiling_off(value: str, is_compiled: bool) -> None:
    environ = {"TPUSERVE_EMULATED_TPU": "8", "TPUSERVE_EMULATED_TPU_COMPILED": value}
    assert find_tpu_system(environ).is_compiled is is_compiled


def test_another_value_for_compiling_is_an_error_that_shows_it() -> None:
    environ = {"TPUSERVE_EMULATED_TPU": "8", "TPUSERVE_EMULATED_TPU_COMPILED": "maybe"}
    with pytest.raises(InvalidSetting, match="'maybe'"):
        find_tpu_system(environ)
