"""Runs a model on all records of files, without a server, for `tpuserve predict`."""
