"""Settings of the process: signals, memory, ports, logs, background threads."""
