"""Estimates the memory that parsing a request body takes, before the memory is allocated."""

import numpy as np

# The memory that parsing takes, in bytes: for any body, for each byte of the body, and for each
# token. tests/server/codec/test_parse_cost.py checks that the sum is an upper bound. A body is
# copied a few times. A comma or a colon stands for a value, with its place in a list and in an
# array; "[" stands for a list, "{" for a dictionary, and two quotation marks for a string.
_FIXED_BYTES = 4 << 20
_BYTES_PER_BYTE = 14
_BYTES_PER_TOKEN = {",": 60, ":": 60, "[": 90, "{": 540, '"': 36}
_CHUNK_BYTES = 1 << 20


def worst_memory_bytes(size: int) -> int:
    """Return an upper bound of the memory that parsing any body of a size takes, in bytes."""
    return _FIXED_BYTES + 250 * size


def estimate_memory_bytes(body: bytes) -> int:
    """Return an upper bound of the memory for parsing and decoding a body, beside the body itself.

    Counts the tokens of JSON in the body, which takes a hundredth of the time of parsing. Other
    threads can run meanwhile.

    Returns:
      The memory in bytes.
    """
    octets = np.frombuffer(body, np.uint8)
    total = _FIXED_BYTES + _BYTES_PER_BYTE * len(body)
    for start in range(0, len(body), _CHUNK_BYTES):
        chunk = octets[start : start + _CHUNK_BYTES]
        for token, num_bytes in _BYTES_PER_TOKEN.items():
            total += num_bytes * int(np.count_nonzero(chunk == ord(token)))
    return total
