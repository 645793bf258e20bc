"""`tpuserve demo`: trains, exports, serves and compares a model of real handwritten digits."""
