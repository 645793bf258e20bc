"""TPU runtimes: each runs the graph of a TPU computation on one kind of real or emulated TPU."""
