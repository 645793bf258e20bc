"""Defines options and argument types that several commands of `tpuserve` share."""
