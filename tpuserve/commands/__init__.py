"""The commands of `tpuserve`. The file of a command declares its options and prints its result."""
