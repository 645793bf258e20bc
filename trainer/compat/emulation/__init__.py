"""An emulated TPU for sessions of a program's own.

What such a program builds by tpu.rewrite, tpu.shard and kin is TensorFlow's own TPU graph, lowered
as soon as it is built: see `tpuserve.lowering.func_graph`. So plain sessions, savers and hooks do.
"""

from trainer.compat.emulation import builders, exports, tpu_names


def install_emulation() -> None:
    """Has TensorFlow build for the emulated TPU, wherever a program names what builds."""
    builders.patch_builders()
    exports.patch_saved_model_builder()
    tpu_names.patch_cluster_resolver()
