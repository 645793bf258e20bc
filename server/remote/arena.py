"""Shared memory, through which one process passes arrays to another process."""

import mmap
import os
import threading
from bisect import bisect_left

# The alignment of blocks, in bytes. It is a whole page, so that the memory of a large block can be
# returned to the operating system, and a multiple of 64 bytes, so that TensorFlow can use an array
# in a block without a copy.
_ALIGNMENT = mmap.PAGESIZE
# The memory of a freed block of at least this number of bytes is returned to the operating system.
# Smaller blocks keep their memory, because getting new pages takes longer than copying an array.
_RELEASE_BYTES = 4 << 20


class Arena:
    """Shared memory in which this process allocates blocks, to pass arrays to another process.

    The memory has no name in the file system, so it is freed when both processes have ended, even
    if they were killed. Pages that no block has used take no memory.

    Attributes:
      descriptor: the file descriptor of the memory, which is sent to the other process.
      memory: the shared memory, mapped for reading and writing.
    """

    def __init__(self, size: int) -> None:
        """Create an arena that has no blocks.

        Args:
          size: the number of bytes of the shared memory; a multiple of the page size.
        """
        self.descriptor = os.memfd_create("tpuserve", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, size)
            self.memory = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._allocated: dict[int, int] = {}
        # The free blocks: their offsets in increasing order, and their sizes, in bytes.
        self._offsets, self._sizes = [0], [size]
        self._lock = threading.Lock()

    def allocate(self, size: int) -> int | None:
        """Allocate a block of at least `size` bytes.

        Returns:
          The offset of the block in the arena, in bytes; None if no free block is large enough.
        """
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        with self._lock:
            index = next((at for at, free in enumerate(self._sizes) if free >= size), None)
            if index is None:
                return None
            offset = self._offsets[index]
            if self._sizes[index] == size:
                del self._offsets[index], self._sizes[index]
            else:
                self._offsets[index] += size
                self._sizes[index] -= size
            self._allocated[offset] = size
            return offset

    def free(self, offset: int) -> None:
        """Free the block at an offset that `allocate` has returned."""
        with self._lock:
            size = self._allocated.pop(offset)
            if size >= _RELEASE_BYTES:
                self.memory.madvise(mmap.MADV_REMOVE, offset, size)
            index = bisect_left(self._offsets, offset)
            if index < len(self._offsets) and offset + size == self._offsets[index]:
                size += self._sizes[index]
                del self._offsets[index], self._sizes[index]
            if index and self._offsets[index - 1] + self._sizes[index - 1] == offset:
                self._sizes[index - 1] += size
            else:
                self._offsets.insert(index, offset)
                self._sizes.insert(index, size)

    @property
    def allocated_bytes(self) -> int:
        """The number of bytes in all allocated blocks."""
        with self._lock:
            return sum(self._allocated.values())

    def close(self) -> None:
        """Close the file descriptor.

        The memory stays mapped as long as an array uses it.
        """
        os.close(self.descriptor)


def map_memory(descriptor: int) -> mmap.mmap:
    """Map the arena of another process into this process, for reading.

    Args:
      descriptor: the file descriptor of the arena; the function does not close the descriptor.
    """
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=mmap.PROT_READ)
