"""Lets `python -m tpuserve.run` run the command `tpuserve run`."""

import sys

from tpuserve.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
