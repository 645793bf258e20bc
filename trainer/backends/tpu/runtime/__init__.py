"""TPU runtimes: the strategies for running a TPU graph on a real system or an emulated one."""
