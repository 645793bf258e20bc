"""Adds source lines of model_fn to XLA's errors about ops that it cannot compile."""

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.stablehlo import xla_errors
from trainer.execution.source_locations import SourceLocations


def explain_xla_error(error: BaseException, locations: SourceLocations) -> UnsupportedOnTpu | None:
    """Translate XLA's error about unsupported ops into an error that names lines of model_fn.

    Returns:
      None if `error` is any other error.
    """
    descriptions = []
    for unsupported in xla_errors.find_unsupported_ops(str(error)):
        line = locations.find_line(unsupported.node)
        created = f", created at {line}" if line else ""
        descriptions.append(f"{unsupported.op} ({unsupported.node}{created})")
    if not descriptions:
        return None
    return UnsupportedOnTpu(
        f"The computation of a TPU core has ops that XLA cannot compile: "
        f"{'; '.join(descriptions)}. Wrap them in tf.compat.v1.tpu.outside_compilation, call "
        f"tf.config.set_soft_device_placement(True) to run all such ops on the host, or move them "
        f"to the input pipeline. On an emulated TPU, TPUConfig(compile_emulated=False) runs them "
        f"without compiling."
    )
