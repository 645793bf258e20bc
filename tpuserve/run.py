"""Runs the command `tpuserve run` for `python -m tpuserve.run`."""

import sys

from tpuserve.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
