"""Locks files and directories with flock(2). A lock ends with the process that holds it."""

import errno
import fcntl


def lock_file(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file or directory exclusively, until its descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        return False
    return True
