"""`tpuserve demo`: trains, exports and serves a model of real handwritten digits.

The demo then compares the predictions of the model's CPU and TPU metagraphs.
"""
