"""Formats the description of a SavedModel for `tpuserve inspect`, as JSON and as tables."""
