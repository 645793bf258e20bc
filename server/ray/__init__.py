"""Serves models with Ray Serve; users import these functions from `tpuserve.ray`."""
