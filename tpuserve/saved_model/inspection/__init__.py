"""What `tpuserve inspect` says of a SavedModel."""
