"""Draws the image of a handwritten digit with characters, for the output of the demo."""

from typing import Any

import numpy as np

# The width, in pixels, of the margin at each side of an image. The margin is not drawn.
_MARGIN = 4
# Pixels with a greater value count as ink. Values range from 0 (paper) to 255 (ink).
_INK_THRESHOLD = 96

# The code of a braille character has one bit for each of its dots, which form 4 rows and 2 columns.
# The array has the bits in this arrangement. Source: The Unicode Standard, block Braille Patterns
# (U+2800).
_BRAILLE_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BRAILLE_BLANK = 0x2800


def draw_digit(image: np.ndarray[Any, Any], *, ascii_only: bool = False) -> str:
    """Return the picture of a digit in five lines of ten characters.

    Args:
      image: uint8 [784], 28 rows of 28 pixels. The outer 4 pixels of each side, which are empty
        in MNIST, are not drawn.
    """
    pixels = np.reshape(image, (28, 28))[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN] > _INK_THRESHOLD
    blocks = pixels.reshape(5, 4, 10, 2).transpose(0, 2, 1, 3)
    if ascii_only:
        # Draw each block of 4 x 2 pixels, which would be a braille character, as `#` if at least
        # half of its pixels are ink, and as a space otherwise.
        rows = blocks.sum(axis=(2, 3)) >= 4
        return "\n".join("".join("#" if is_ink else " " for is_ink in row) for row in rows)
    dots = (blocks * _BRAILLE_BITS).sum(axis=(2, 3))
    return "\n".join("".join(chr(_BRAILLE_BLANK + bits) for bits in row) for row in dots)
