"""Describes the StableHLO modules in a graph, which are attributes of XlaCallModule ops.

jax2tf and Keras's JaxLayer write these ops. A module runs only on the platforms for which jax has
lowered it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import UnsupportedModel

CALL_MODULE = "XlaCallModule"

# The first bytes of MLIR bytecode. They are followed by the version of the bytecode, a varint, and
# by the name of the producer, such as StableHLO_v1.8.4, which ends with a zero byte.
# Source: https://mlir.llvm.org/docs/BytecodeFormat/.
_MAGIC = b"ML\xefR"
_MAX_HEADER = 64
# A value of the attribute disabled_checks of XlaCallModule. An op with this value may run on
# platforms that its attribute platforms does not list.
# Source: tensorflow/compiler/tf2xla/kernels/xla_call_module_loader.cc.
_PLATFORM_CHECK = b"platform"

_ADVICE = (
    'Convert it for both: jax2tf.convert(..., native_serialization_platforms=("cpu", "tpu")), or '
    'jax.export.export(..., platforms=("cpu", "tpu")).'
)


@dataclass(frozen=True)
class StableHloModule:
    """The description of the StableHLO module of an XlaCallModule op.

    Attributes:
      platforms: the platforms that the module was lowered for, such as "CPU"; empty if it runs on
        any platform.
      version: the version of StableHLO in the header of the module, such as "StableHLO_v1.8.4";
        "text" for a module in text form; "" if the header is damaged.
    """

    node: str
    platforms: tuple[str, ...]
    version: str
    is_on_tpu: bool = False

    def runs_on(self, platform: str) -> bool:
        """Return whether the module runs on a platform, such as "CPU"."""
        return not self.platforms or platform in self.platforms

    def why_not_on(self, platform: str) -> str:
        """Return the error text for a module that does not run on a platform, with advice."""
        only = ", ".join(self.platforms)
        return (
            f"the StableHLO module of {CALL_MODULE} {self.node!r} is for {only} alone, and not for "
            f"{platform}. {_ADVICE}"
        )


def describe_module(node: Any, *, is_on_tpu: bool = False) -> StableHloModule:
    """Describe the StableHLO module of an XlaCallModule node."""
    is_checked = _PLATFORM_CHECK not in node.attr["disabled_checks"].list.s
    names = node.attr["platforms"].list.s if is_checked else ()
    platforms = tuple(name.decode(errors="backslashreplace") for name in names)
    return StableHloModule(node.name, platforms, _version(node.attr["module"].s), is_on_tpu)


def check_platforms(modules: Iterable[StableHloModule], device: str, where: str) -> None:
    """Check that each StableHLO module of a metagraph can run on the device on which it is placed.

    Without this check, the error would occur in the first request, which compiles the module.

    Args:
      device: the device that runs the TPU computations: "TPU", or "CPU" if they were lowered to the
        CPU. Modules outside of TPU computations run on the host's CPU.
    """
    for module in modules:
        platform = device if module.is_on_tpu else "CPU"
        if not module.runs_on(platform):
            raise UnsupportedModel(f"{where} cannot run: {module.why_not_on(platform)}")


def _version(module: bytes) -> str:
    if not module.startswith(_MAGIC):
        return "text" if module.lstrip().startswith((b"module", b"#", b"//")) else ""
    header = module[len(_MAGIC) : _MAX_HEADER]
    # Skip the version of the bytecode, a varint of MLIR's encoding: the number of its bytes is one
    # more than the number of trailing zero bits of its first byte.
    first = header[0] if header else 0
    length = (first & -first).bit_length() if first else 9
    name, end, _ = header[length:].partition(b"\0")
    return name.decode(errors="backslashreplace") if end else ""
