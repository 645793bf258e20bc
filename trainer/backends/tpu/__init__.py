"""The run on a TPU, real or emulated: one replicated program, fed by the hosts.

`training`, `evaluation` and `prediction` build a mode's program each; `replicated` puts a step
into the loop that all replicas run, `outfeed` brings results to the host, `feeding` drives both
ends while the main thread runs the loop, and `system` finds the TPU. On an emulated system the
same graph is lowered before it runs.
"""

from trainer.backends.tpu.backend import OnTpu, place

__all__ = ["OnTpu", "place"]
