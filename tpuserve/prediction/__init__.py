"""Predicts whole files of records on one machine: `tpuserve predict`."""
