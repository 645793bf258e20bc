"""Sets up the server's process: its signals, memory, ports, logs and background threads."""
