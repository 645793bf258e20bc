"""TPU runtimes: the strategies for running a TPU graph on a real or an emulated system."""
