"""`python -m tpuserve` is the command `tpuserve`."""

from tpuserve.cli import main

if __name__ == "__main__":
    main()
