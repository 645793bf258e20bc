"""Lets `python -m tpuserve` run the command line tool `tpuserve`."""

from tpuserve.cli import main

if __name__ == "__main__":
    main()
