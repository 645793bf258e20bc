import pytest

from tpuserve.errors import UnsupportedModel
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model.stablehlo_modules import (
    StableHloModule,
    check_platforms,
    describe_module,
)


def node(module: bytes, *platforms: bytes, disabled_checks: tuple[bytes, ...] = ()) -> pb.NodeDef:
    node_def = pb.NodeDef(name="call", op="XlaCallModule")
    node_def.attr["module"].s = module
    node_def.attr["platforms"].list.s.extend(platforms)
    node_def.attr["disabled_checks"].list.s.extend(disabled_checks)
    return node_def


@pytest.mark.parametrize(
    ("module", "version"),
    [
        # The byte 0x1b is the version of the bytecode, 13 (0b1101), followed by a bit 1, which says
        # that the number has one byte.
        (b"ML\xefR\x1bStableHLO_v1.8.4\0\x01...", "StableHLO_v1.8.4"),
        (b"module @jit_f { }", "text"),
        (b"ML\xefR", ""),
        (b"ML\xefR\x1b" + b"x" * 100, ""),
        (b"", ""),
    ],
)
def test_version_is_read_from_the_header(module: bytes, version: str) -> None:
    assert describe_module(node(module)).version == version


def test_platforms_are_listed_unless_the_check_is_disabled() -> None:
    assert describe_module(node(b"", b"CPU", b"TPU")).platforms == ("CPU", "TPU")
    unchecked = describe_module(node(b"", b"TPU", disabled_checks=(b"platform",)))
    assert unchecked.runs_on("CPU")


def test_module_runs_on_its_platforms_and_without_any_on_all() -> None:
    tpu_alone = StableHloModule("call", ("TPU",), "")
    assert (tpu_alone.runs_on("TPU"), tpu_alone.runs_on("CPU")) == (True, False)
    assert StableHloModule("call", (), "").runs_on("CPU")


def test_module_on_the_host_needs_a_cpu_and_one_on_the_tpu_its_device() -> None:
    on_tpu = StableHloModule("call", ("TPU",), "", is_on_tpu=True)
    check_platforms([on_tpu], "TPU", "{serve, tpu} of /m/1")
    with pytest.raises(UnsupportedModel, match="^{serve, tpu} of /m/1 cannot run: the StableHLO"):
        check_platforms([on_tpu], "CPU", "{serve, tpu} of /m/1")
    with pytest.raises(UnsupportedModel, match="XlaCallModule 'call' is for TPU alone"):
        check_platforms([StableHloModule("call", ("TPU",), "")], "TPU", "{serve} of /m/1")
