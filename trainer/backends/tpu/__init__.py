"""The TPU backend: one replicated program on a real or emulated TPU, fed by the hosts.

`training`, `evaluation` and `prediction` build the graph of one mode each, on a `replicated_step`
made of step parts (package `step`). The package `runtime` holds the differences between real and
emulated systems, `transfer` moves batches and results between host and cores, and `diagnostics`
translates errors.
"""
