"""Exits, fails, waits or prints its environment, as its first argument says; no TensorFlow."""

import os
import sys

[mode] = sys.argv[1:2] or ["say"]

if mode == "exit":
    sys.exit(int(sys.argv[2]))
if mode == "fail":
    import failing
if mode == "wait":
    import atexit
    import time

    atexit.register(print, "last words", flush=True)
    print("waiting", flush=True)
    time.sleep(600)

print(sys.argv)
print(__name__, os.path.basename(__file__), os.path.isabs(__file__))
print(sys.path[0] == os.path.dirname(os.path.realpath(__file__)))
print(sys.modules["__main__"].mode == mode, __spec__ is None, __package__)
print(os.environ.get("TPUSERVE_EMULATED_TPU"), "tensorflow" in sys.modules)
