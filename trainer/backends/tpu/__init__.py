"""The TPU backend: one replicated program on a real or emulated TPU, fed by the hosts.

`training`, `evaluation` and `prediction` build the graph of one mode each, on a `replicated_step`
made of step parts (package `step`). `runtime` holds what differs between a real system and an emulated
one, `transfer` moves batches and results between host and cores, and `diagnostics` translates
errors.
"""
