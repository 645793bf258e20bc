"""Lets programs without a TPUEstimator run TPU computations on an emulated TPU.

An emulated TPU is a CPU that runs the graphs which a program builds for a TPU. Programs without a
TPUEstimator call tpu.rewrite, tpu.shard and similar functions, and run the graph in a session of
their own. As soon as TensorFlow has built the graph of such a call, this package lowers the graph:
it replaces the TPU ops by ops that a CPU can run (see `tpuserve.lowering.func_graph`). Plain
sessions, savers and hooks can then run the graph.
"""

from trainer.compat.emulation import builders, exports, tpu_names


def install_emulation() -> None:
    """Patch TensorFlow's functions that build TPU graphs, to build them for an emulated TPU.

    The patched functions do the same as TensorFlow's if no TPU is emulated.
    """
    builders.patch_builders()
    exports.patch_saved_model_builder()
    tpu_names.patch_cluster_resolver()
