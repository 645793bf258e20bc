"""The commands of `tpuserve`, a file each: options, one call, what is printed."""
