"""Lowering: replaces TPU ops by ops that have CPU kernels.

`lower` takes a GraphDef for a TPU, and returns a GraphDef that computes the same results without a
TPU. `rules.op_table` lists the ops that need special treatment, and how each is replaced.
"""

from tpuserve.lowering.graph_lowering import lower

__all__ = ["lower"]
