"""Estimates the memory that parsing a request body takes, before the memory is allocated."""

import numpy as np

# The memory that parsing takes, in bytes: a fixed part, a part for each byte of the body, because a
# body is copied a few times, and a part for each JSON token.
_FIXED_BYTES = 4 << 20
_BYTES_PER_BYTE = 14
_BYTES_PER_TOKEN = {",": 60, ":": 60, "[": 90, "{": 540, '"': 36}
_CHUNK_BYTES = 1 << 20


def worst_memory_bytes(size: int) -> int:
    """Return an upper bound of the memory, in bytes, for parsing any body of `size` bytes."""
    return _FIXED_BYTES + 250 * size


def estimate_memory_bytes(body: bytes) -> int:
    """Return an upper bound of the memory, in bytes, for parsing and decoding a body.

    The memory of the body itself is not included.
    """
    octets = np.frombuffer(body, np.uint8)
    total = _FIXED_BYTES + _BYTES_PER_BYTE * len(body)
    for start in range(0, len(body), _CHUNK_BYTES):
        chunk = octets[start : start + _CHUNK_BYTES]
        for token, num_bytes in _BYTES_PER_TOKEN.items():
            total += num_bytes * int(np.count_nonzero(chunk == ord(token)))
    return total
