"""The commands of `tpuserve`: one file declares a command's options and prints its result."""
