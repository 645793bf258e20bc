"""The sample model that `tpuserve serve --sample` serves. It comes with the package."""
