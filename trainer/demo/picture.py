"""A digit drawn with characters."""

from typing import Any

import numpy as np

_MARGIN = 4
_INK = 96

# A braille character has dots in 4 rows and 2 columns; this is the bit of each.
# Source: The Unicode Standard, block Braille Patterns (U+2800).
_BRAILLE_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BRAILLE_BLANK = 0x2800


def draw_digit(image: np.ndarray[Any, Any], *, ascii_only: bool = False) -> str:
    """Five lines of ten characters that look like the digit.

    Args:
      image: uint8 [784], 28 rows of 28 pixels; the outer 4 of each side, which MNIST leaves
        empty, are not drawn.
      ascii_only: for terminals that have no braille.
    """
    pixels = np.reshape(image, (28, 28))[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN] > _INK
    blocks = pixels.reshape(5, 4, 10, 2).transpose(0, 2, 1, 3)
    if ascii_only:
        # Half of the pixels of a stroke's block are ink.
        rows = blocks.sum(axis=(2, 3)) >= 4
        return "\n".join("".join("#" if each else " " for each in row) for row in rows)
    dots = (blocks * _BRAILLE_BITS).sum(axis=(2, 3))
    return "\n".join("".join(chr(_BRAILLE_BLANK + each) for each in row) for row in dots)
