"""Serves models with Ray Serve. Users import its functions from `tpuserve.ray`."""
