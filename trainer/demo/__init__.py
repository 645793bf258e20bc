"""`tpuserve demo`: train, export and serve, the whole way once, on real digits."""
