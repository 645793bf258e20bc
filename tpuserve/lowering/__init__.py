"""TPU ops → ops with CPU kernels, so that the graph made for a TPU runs without one.

`lower` takes the very graph that would go to a TPU and returns one of the same meaning. It is a
pure function over GraphDefs; each family of ops has a file of its own here.
"""

from tpuserve.lowering.graph_lowering import lower

__all__ = ["lower"]
