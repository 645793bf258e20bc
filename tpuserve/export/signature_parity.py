"""Checks that both metagraphs of an export have the same signatures."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError


def check_same_signatures(
    cpu: Mapping[str, Any], tpu: Mapping[str, Any], flag: str = "use_tpu"
) -> None:
    """Check that two metagraphs have the same signatures, so that a client can use either.

    Args:
      cpu: Name → SignatureDef of the metagraph {serve}.
      tpu: Name → SignatureDef of the metagraph {serve, tpu}.

    Raises:
      ExportError: A signature is missing in one metagraph, or differs in its method name or in the
        names, types or known dimensions of its inputs or outputs.
    """
    for name in sorted(cpu.keys() | tpu.keys()):
        if name in cpu and name in tpu and _are_same(cpu[name], tpu[name]):
            continue
        cpu_text = _format_signature(cpu[name]) if name in cpu else "none"
        tpu_text = _format_signature(tpu[name]) if name in tpu else "none"
        raise ExportError(
            f"signature {name!r} is {cpu_text} in the metagraph {{serve}} and {tpu_text} in "
            f"{{serve, tpu}}. Return the same outputs whether {flag} is True or False, so that "
            f"a client need not know where the model runs."
        )


def _are_same(first: Any, second: Any) -> bool:
    return first.method_name == second.method_name and all(
        _are_compatible(infos, other_infos)
        for infos, other_infos in (
            (first.inputs, second.inputs),
            (first.outputs, second.outputs),
        )
    )


def _are_compatible(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether the inputs (or outputs) of two SignatureDefs have the same names and types."""
    return first.keys() == second.keys() and all(
        first[alias].dtype == second[alias].dtype
        and tf.TensorShape(first[alias].tensor_shape).is_compatible_with(
            tf.TensorShape(second[alias].tensor_shape)
        )
        for alias in first
    )


def _format_signature(signature: Any) -> str:
    """Format a SignatureDef for a message: "predict (x: float32 [?]) to (y: float32 [?])"."""
    inputs, outputs = (
        ", ".join(f"{alias}: {_format_tensor(infos[alias])}" for alias in sorted(infos))
        for infos in (signature.inputs, signature.outputs)
    )
    return f"{signature.method_name.rpartition('/')[2]} ({inputs}) to ({outputs})"


def _format_tensor(info: Any) -> str:
    """Format the dtype and shape of a TensorInfo for a message, such as "float32 [?, 10]"."""
    shape = tf.TensorShape(info.tensor_shape)
    if shape.rank is None:
        return f"{tf.as_dtype(info.dtype).name} of any rank"
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"{tf.as_dtype(info.dtype).name} [{sizes}]"
