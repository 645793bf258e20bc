"""The TPU backend, which runs one replicated program on a real or emulated TPU.

`training`, `evaluation` and `prediction` build the graph of one mode each. All three use
`replicated_step`, which builds the step that every replica runs. Package `step` has the pieces of
this step, such as the part that sends a host_call's tensors to the host. Package `runtime` has the
operations that differ between real and emulated systems, `transfer` moves batches and results
between host and cores, and `diagnostics` translates errors.
"""
