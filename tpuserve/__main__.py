"""Runs the command `tpuserve` for `python -m tpuserve`."""

from tpuserve.cli import main

if __name__ == "__main__":
    main()
