"""The commands of `tpuserve`, one file each: options, one call, printed output."""
