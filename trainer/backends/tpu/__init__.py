"""The TPU backend: one replicated program on a real or emulated TPU, fed by the hosts.

`training`, `evaluation` and `prediction` build the graph of one mode each. `step` holds the
replicated step and its loop, `transfer` moves batches and results between host and cores, and
`diagnostics` translates errors. An emulated system runs the same graph after lowering.
"""

from trainer.backends.tpu.backend import TpuBackend, place

__all__ = ["TpuBackend", "place"]
