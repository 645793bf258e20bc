"""The promise that a client need not know which metagraph answers."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError


def check_same_signatures(
    cpu: Mapping[str, Any], tpu: Mapping[str, Any], told_by: str = "use_tpu"
) -> None:
    """Refuses metagraphs that a client could tell apart by their signatures.

    Args:
      cpu, tpu: name → SignatureDef.
      told_by: what is True as the TPU metagraph is built.

    Raises:
      ExportError: names the first signature that differs in its method, aliases or types, or in
        shapes that no tensor has both of.
    """
    for name in sorted(cpu.keys() | tpu.keys()):
        if name in cpu and name in tpu and _agree(cpu[name], tpu[name]):
            continue
        of_cpu, of_tpu = (_form(each[name]) if name in each else "none" for each in (cpu, tpu))
        raise ExportError(
            f"signature {name!r} is {of_cpu} in the metagraph {{serve}} and {of_tpu} in "
            f"{{serve, tpu}}. Return the same outputs whether {told_by} is True or False, so that "
            f"a client need not know where the model runs."
        )


def _agree(first: Any, second: Any) -> bool:
    return first.method_name == second.method_name and all(
        mine.keys() == other.keys()
        and all(
            mine[alias].dtype == other[alias].dtype
            and tf.TensorShape(mine[alias].tensor_shape).is_compatible_with(
                tf.TensorShape(other[alias].tensor_shape)
            )
            for alias in mine
        )
        for mine, other in ((first.inputs, second.inputs), (first.outputs, second.outputs))
    )


def _form(signature: Any) -> str:
    inputs, results = (
        ", ".join(f"{alias}: {_show(each[alias])}" for alias in sorted(each))
        for each in (signature.inputs, signature.outputs)
    )
    return f"{signature.method_name.rpartition('/')[2]} ({inputs}) to ({results})"


def _show(info: Any) -> str:
    shape = tf.TensorShape(info.tensor_shape)
    if shape.rank is None:
        return f"{tf.as_dtype(info.dtype).name} of any rank"
    sizes = ", ".join("?" if each is None else str(each) for each in shape)
    return f"{tf.as_dtype(info.dtype).name} [{sizes}]"
