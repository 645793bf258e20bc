"""Tables of the layers of Inception v3.

Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015. The names
of the layers are the names of their variable scopes in slim's checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LayerSpec:
    """Describes a convolution or pooling layer of Inception v3.

    Attributes:
      padding: "VALID" or "SAME"; "" for the default, which is "VALID" in the layers before the
        first block, and "SAME" in the blocks.
    """

    name: str
    kernel: tuple[int, int]
    filters: int = 0
    stride: int = 1
    padding: str = ""


def _layer_spec(name: str, filters: int = 0, kernel: str = "", stride: int = 1) -> LayerSpec:
    height, width = (kernel or name.rpartition("_")[2]).split("x")
    padding = "VALID" if stride > 1 else ""
    return LayerSpec(name, (int(height), int(width)), filters, stride, padding)


STEM = (
    _layer_spec("Conv2d_1a_3x3", 32, stride=2),
    _layer_spec("Conv2d_2a_3x3", 32),
    LayerSpec("Conv2d_2b_3x3", (3, 3), 64, padding="SAME"),
    _layer_spec("MaxPool_3a_3x3", stride=2),
    _layer_spec("Conv2d_3b_1x1", 80),
    _layer_spec("Conv2d_4a_3x3", 192),
    _layer_spec("MaxPool_5a_3x3", stride=2),
)

_FIRST = _layer_spec("Conv2d_0a_1x1", 192)


def _pool_branch(filters: int) -> tuple[LayerSpec, ...]:
    """Return the branch of a block that consists of average pooling and a 1x1 convolution."""
    return _layer_spec("AvgPool_0a_3x3"), _layer_spec("Conv2d_0b_1x1", filters)


def _inception_a(
    pool_filters: int, names: tuple[str, str] = ("Conv2d_0a_1x1", "Conv2d_0b_5x5")
) -> Any:
    """Return the layers of a block of Inception v3 for inputs of 35x35 pixels."""
    return (
        (_layer_spec("Conv2d_0a_1x1", 64),),
        (_layer_spec(names[0], 48), _layer_spec(names[1], 64)),
        (
            _layer_spec("Conv2d_0a_1x1", 64),
            _layer_spec("Conv2d_0b_3x3", 96),
            _layer_spec("Conv2d_0c_3x3", 96),
        ),
        _pool_branch(pool_filters),
    )


def _inception_b(filters: int) -> Any:
    """Return the layers of a block of Inception v3 for inputs of 17x17 pixels."""
    return (
        (_FIRST,),
        (
            _layer_spec("Conv2d_0a_1x1", filters),
            _layer_spec("Conv2d_0b_1x7", filters),
            _layer_spec("Conv2d_0c_7x1", 192),
        ),
        (
            _layer_spec("Conv2d_0a_1x1", filters),
            _layer_spec("Conv2d_0b_7x1", filters),
            _layer_spec("Conv2d_0c_1x7", filters),
            _layer_spec("Conv2d_0d_7x1", filters),
            _layer_spec("Conv2d_0e_1x7", 192),
        ),
        _pool_branch(192),
    )


def _inception_c(column: str) -> Any:
    """Return the layers of a block of Inception v3 for inputs of 8x8 pixels."""
    return (
        (_layer_spec("Conv2d_0a_1x1", 320),),
        (
            _layer_spec("Conv2d_0a_1x1", 384),
            (_layer_spec("Conv2d_0b_1x3", 384), _layer_spec(column, 384)),
        ),
        (
            _layer_spec("Conv2d_0a_1x1", 448),
            _layer_spec("Conv2d_0b_3x3", 384),
            (_layer_spec("Conv2d_0c_1x3", 384), _layer_spec("Conv2d_0d_3x1", 384)),
        ),
        _pool_branch(192),
    )


BLOCKS: Mapping[str, Any] = {
    "Mixed_5b": _inception_a(32),
    # Keep the two irregular layer names of "Mixed_5c", because slim's checkpoints contain them.
    "Mixed_5c": _inception_a(64, ("Conv2d_0b_1x1", "Conv_1_0c_5x5")),
    "Mixed_5d": _inception_a(64),
    "Mixed_6a": (
        (_layer_spec("Conv2d_1a_1x1", 384, "3x3", stride=2),),
        (
            _layer_spec("Conv2d_0a_1x1", 64),
            _layer_spec("Conv2d_0b_3x3", 96),
            _layer_spec("Conv2d_1a_1x1", 96, "3x3", stride=2),
        ),
        (_layer_spec("MaxPool_1a_3x3", stride=2),),
    ),
    "Mixed_6b": _inception_b(128),
    "Mixed_6c": _inception_b(160),
    "Mixed_6d": _inception_b(160),
    "Mixed_6e": _inception_b(192),
    "Mixed_7a": (
        (_FIRST, _layer_spec("Conv2d_1a_3x3", 320, stride=2)),
        (
            _FIRST,
            _layer_spec("Conv2d_0b_1x7", 192),
            _layer_spec("Conv2d_0c_7x1", 192),
            _layer_spec("Conv2d_1a_3x3", 192, stride=2),
        ),
        (_layer_spec("MaxPool_1a_3x3", stride=2),),
    ),
    "Mixed_7b": _inception_c("Conv2d_0b_3x1"),
    "Mixed_7c": _inception_c("Conv2d_0c_3x1"),
}
