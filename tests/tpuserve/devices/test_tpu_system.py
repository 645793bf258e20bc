import pytest

import tpuserve
from tpuserve.devices import TpuSystem, find_tpu_system
from tpuserve.errors import InvalidSetting


@pytest.mark.parametrize(
    ("value", "cores", "hosts"), [("1", 1, 1), ("8", 8, 1), ("2x4", 8, 2), (" 4x2 ", 8, 4)]
)
def test_emulation_takes_cores_or_hosts_by_cores(value: str, cores: int, hosts: int) -> None:
    assert find_tpu_system({"TPUSERVE_EMULATED_TPU": value}) == TpuSystem(
        tpu_cores=cores, hosts=hosts, is_emulated=True
    )


@pytest.mark.parametrize("value", ["yes", "-1", "0x4", "2x", "x2", "1.5"])
def test_invalid_topology_is_an_error_that_shows_it(value: str) -> None:
    with pytest.raises(InvalidSetting, match="TPUSERVE_EMULATED_TPU='.*' is not a valid TPU"):
        find_tpu_system({"TPUSERVE_EMULATED_TPU": value})


@pytest.mark.parametrize("environ", [{}, {"TPUSERVE_EMULATED_TPU": ""}])
def test_emulation_must_be_requested(environ: dict[str, str]) -> None:
    assert find_tpu_system(environ) == TpuSystem(tpu_cores=0, hosts=0, is_emulated=False)


def test_runtime_emulated_is_one_core_unless_the_topology_is_given() -> None:
    system = find_tpu_system({"TPUSERVE_TPU_RUNTIME": "emulated"})
    assert str(system) == "emulated TPU of 1 core, from TPUSERVE_TPU_RUNTIME"
    environ = {"TPUSERVE_TPU_RUNTIME": "emulated", "TPUSERVE_EMULATED_TPU": "2x4"}
    assert find_tpu_system(environ).tpu_cores == 8


def test_runtime_tensorflow_overrides_a_requested_emulation() -> None:
    environ = {"TPUSERVE_TPU_RUNTIME": "tensorflow", "TPUSERVE_EMULATED_TPU": "8"}
    assert not find_tpu_system(environ).has_tpu


def test_unknown_runtime_is_an_error_that_names_the_runtimes() -> None:
    with pytest.raises(InvalidSetting, match="'xla'. Set it to pjrt, tensorflow or emulated"):
        find_tpu_system({"TPUSERVE_TPU_RUNTIME": "xla"})


def test_runtime_pjrt_finds_the_devices_of_the_selected_platform() -> None:
    pytest.importorskip("jax")
    environ = {"TPUSERVE_TPU_RUNTIME": "pjrt", "TPUSERVE_PJRT_PLATFORM": "cpu"}
    system = find_tpu_system(environ)
    assert system.has_tpu
    assert not system.is_run_by_tensorflow
    assert "of the platform cpu" in str(system)


def test_unknown_pjrt_platform_is_an_error_that_names_the_platforms() -> None:
    environ = {"TPUSERVE_TPU_RUNTIME": "pjrt", "TPUSERVE_PJRT_PLATFORM": "rocm"}
    with pytest.raises(InvalidSetting, match="'rocm'. Set it to tpu, cpu or cuda"):
        find_tpu_system(environ)


def test_text_of_a_tpu_system_states_cores_and_emulation() -> None:
    assert str(TpuSystem()) == "no TPU found"
    assert str(TpuSystem(4, 1)) == "4 TPU cores found"
    assert str(TpuSystem(8, 2, is_emulated=True)).startswith("emulated TPU of 8 cores on 2 hosts")


@pytest.mark.parametrize(
    ("system", "device"),
    [
        (TpuSystem(8, 1), "TPU"),
        (TpuSystem(8, 1, is_emulated=True), "CPU"),
        (TpuSystem(1, 1, pjrt_platform="tpu"), "TPU"),
        (TpuSystem(1, 1, pjrt_platform="cpu"), "CPU"),
        (TpuSystem(1, 1, pjrt_platform="cuda"), "CUDA"),
    ],
)
def test_device_is_a_cpu_if_a_cpu_takes_the_place_of_the_tpu(
    system: TpuSystem, device: str
) -> None:
    assert system.device == device


def test_emulation_of_a_block_overrides_the_environment_until_it_ends() -> None:
    environ = {"TPUSERVE_EMULATED_TPU": "4"}
    with tpuserve.emulated_tpu(cores=8, hosts=2, compiled=False):
        system = find_tpu_system(environ)
    assert (system.tpu_cores, system.hosts, system.is_compiled) == (8, 2, False)
    assert find_tpu_system(environ).tpu_cores == 4


@pytest.mark.parametrize(("cores", "hosts"), [(0, 1), (8, 0), (8, 3)])
def test_cores_must_be_a_multiple_of_hosts(cores: int, hosts: int) -> None:
    with pytest.raises(InvalidSetting, match=f"cores={cores} and hosts={hosts}"):
        tpuserve.emulated_tpu(cores=cores, hosts=hosts)


@pytest.mark.parametrize(("value", "is_compiled"), [("", True), ("1", True), ("0", False)])
def test_environment_can_disable_compilation(value: str, is_compiled: bool) -> None:
    environ = {"TPUSERVE_EMULATED_TPU": "8", "TPUSERVE_EMULATED_TPU_COMPILED": value}
    assert find_tpu_system(environ).is_compiled is is_compiled


def test_invalid_value_for_compilation_is_an_error_that_shows_it() -> None:
    environ = {"TPUSERVE_EMULATED_TPU": "8", "TPUSERVE_EMULATED_TPU_COMPILED": "maybe"}
    with pytest.raises(InvalidSetting, match="'maybe'"):
        find_tpu_system(environ)
