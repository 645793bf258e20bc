"""Lowering: replaces TPU ops by ops that have CPU kernels.

`lower` takes the graph that would run on a TPU and returns a graph with the same results that runs
without one. It is a pure function over GraphDefs. `rules.op_table` has one record for each op.
"""

from tpuserve.lowering.graph_lowering import lower

__all__ = ["lower"]
