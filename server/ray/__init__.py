"""Deployments of Ray Serve with the data plane inside: `tpuserve.ray`."""
