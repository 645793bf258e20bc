"""The StableHLO modules of a graph: its XlaCallModule ops, which jax2tf and JaxLayer write."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import UnsupportedModel

CALL_MODULE = "XlaCallModule"

# The first bytes of MLIR bytecode. A number of variable length follows, and then the name of the
# producer, such as StableHLO_v1.8.4, which ends with a zero byte.
# Source: https://mlir.llvm.org/docs/BytecodeFormat/.
_MAGIC = b"ML\xefR"
_MAX_HEADER = 64
# The value of disabled_checks by which an op may run on platforms that it does not list.
# Source: tensorflow/compiler/tf2xla/kernels/xla_call_module_loader.cc.
_PLATFORM_CHECK = b"platform"

_ADVICE = (
    'Convert it for both: jax2tf.convert(..., native_serialization_platforms=("cpu", "tpu")), or '
    'jax.export.export(..., platforms=("cpu", "tpu")).'
)


@dataclass(frozen=True)
class StableHloModule:
    """The StableHLO module of one XlaCallModule op.

    Attributes:
      node: the name of the op's node.
      platforms: the platforms that the module was lowered for, such as "CPU"; empty for any.
      version: the producer in the header of the module, such as "StableHLO_v1.8.4"; "text" for a
        module in text form; "" if the header is damaged.
      is_on_tpu: whether the TPU runs the node, and not the host.
    """

    node: str
    platforms: tuple[str, ...]
    version: str
    is_on_tpu: bool = False

    def runs_on(self, platform: str) -> bool:
        """Return whether the module runs on a platform, such as "CPU"."""
        return not self.platforms or platform in self.platforms

    def why_not_on(self, platform: str) -> str:
        """Return a sentence that names the module's platforms, and a sentence of advice."""
        only = ", ".join(self.platforms)
        return (
            f"the StableHLO module of {CALL_MODULE} {self.node!r} is for {only} alone, and not for "
            f"{platform}. {_ADVICE}"
        )


def describe_module(node: Any, *, is_on_tpu: bool = False) -> StableHloModule:
    """Describe the module of an XlaCallModule node, a NodeDef of TensorFlow or `tpuserve.proto`."""
    is_checked = _PLATFORM_CHECK not in node.attr["disabled_checks"].list.s
    names = node.attr["platforms"].list.s if is_checked else ()
    platforms = tuple(name.decode(errors="backslashreplace") for name in names)
    return StableHloModule(node.name, platforms, _version(node.attr["module"].s), is_on_tpu)


def check_platforms(modules: Iterable[StableHloModule], device: str, where: str) -> None:
    """Check that each module runs on its device, before TensorFlow compiles it at a request.

    Args:
      modules: the modules of a metagraph.
      device: the device of the TPU computations: "CPU" or "TPU". The host is a CPU.
      where: the metagraph and its directory, for the error.

    Raises:
      UnsupportedModel: a module is for other platforms.
    """
    for module in modules:
        platform = device if module.is_on_tpu else "CPU"
        if not module.runs_on(platform):
            raise UnsupportedModel(f"{where} cannot run: {module.why_not_on(platform)}")


def _version(module: bytes) -> str:
    if not module.startswith(_MAGIC):
        return "text" if module.lstrip().startswith((b"module", b"#", b"//")) else ""
    header = module[len(_MAGIC) : _MAX_HEADER]
    # Skip the version of the bytecode, a number of variable length. It takes one byte more than
    # there are zero bits at the low end of its first byte.
    first = header[0] if header else 0
    length = (first & -first).bit_length() if first else 9
    name, end, _ = header[length:].partition(b"\0")
    return name.decode(errors="backslashreplace") if end else ""
