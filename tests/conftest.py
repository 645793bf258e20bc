"""What all tests share: the environment of a quiet TensorFlow, and small real models."""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A developer's emulated TPU must not change what the tests see.
os.environ.pop("TPUSERVE_EMULATED_TPU", None)
os.environ.pop("TF_CONFIG", None)
