"""Locks files and directories with flock(2). A lock ends with the process that holds it."""

import errno
import fcntl


def lock_file(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file or directory exclusively, until its descriptor is closed.

    Args:
      descriptor: The descriptor of the file or directory.
      wait: Whether to wait for the process that holds the lock.

    Returns:
      True if the file is locked; False if the file system does not support locks.

    Raises:
      BlockingIOError: Another process holds the lock, and `wait` is False.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        return False
    return True
