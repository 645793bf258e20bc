"""Runs TPU computations on an emulated TPU in sessions that a program creates itself.

Such programs call tpu.rewrite, tpu.shard and similar functions without a TPUEstimator. As soon as
TensorFlow has built the graph of such a call, this package lowers the graph: it replaces the TPU
ops by ops that a CPU can run (see `tpuserve.lowering.func_graph`). Plain sessions, savers and hooks
can then run the graph.
"""

from trainer.compat.emulation import builders, exports, tpu_names


def install_emulation() -> None:
    """Patch TensorFlow's functions for TPU graphs so that they build for the emulated TPU.

    The patched functions behave as before if no TPU is emulated.
    """
    builders.patch_builders()
    exports.patch_saved_model_builder()
    tpu_names.patch_cluster_resolver()
