"""tf.contrib.image: images turned, moved and seen from elsewhere, as augmentation does."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib_names import missing_names

__all__ = [
    "angles_to_projective_transforms",
    "compose_transforms",
    "flat_transforms_to_matrices",
    "matrices_to_flat_transforms",
    "rotate",
    "transform",
    "translate",
    "translations_to_projective_transforms",
]


def transform(
    images: Any,
    transforms: Any,
    interpolation: str = "NEAREST",
    output_shape: Any = None,
    name: str | None = None,
) -> Any:
    """Images in which the place (x, y) shows what was at another; 0 beyond the edge.

    Args:
      images: [h, w], [h, w, c] or [b, h, w, c].
      transforms: [8] or [b, 8]: with k = c0 x + c1 y + 1, (a0, a1, a2, b0, b1, b2, c0, c1) takes
        (x, y) to ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k).
      interpolation: "NEAREST" or "BILINEAR".
      output_shape: height and width of the result; the images' by default.
      name: of the ops.

    Raises:
      InvalidSetting: the shapes are others.
    """
    with tf.name_scope(name or "transform"):
        images = tf.convert_to_tensor(images)
        whole = _to_batch(images)
        transforms = tf.convert_to_tensor(transforms, tf.float32)
        if transforms.shape.rank == 1:
            transforms = transforms[None]
        if output_shape is None:
            output_shape = tf.shape(whole)[1:3]
        found = tf.raw_ops.ImageProjectiveTransformV3(
            images=whole,
            transforms=transforms,
            output_shape=tf.cast(output_shape, tf.int32),
            fill_value=0.0,
            interpolation=interpolation.upper(),
        )
        size = tf.get_static_value(output_shape)
        places = whole.shape[1:3] if size is None else size
        found.set_shape([whole.shape[0], *places, whole.shape[3]])
        rank = images.shape.rank
        return found if rank == 4 else found[0] if rank == 3 else found[0, :, :, 0]


def _to_batch(images: Any) -> Any:
    rank = images.shape.rank
    if rank not in (2, 3, 4):
        raise InvalidSetting(
            f"an image has the shape {images.shape}. Give [h, w], [h, w, c] or [b, h, w, c]."
        )
    return images[None, :, :, None] if rank == 2 else images[None] if rank == 3 else images


def rotate(
    images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None
) -> Any:
    """Images turned about their centres, counterclockwise.

    Args:
      images, interpolation, name: see `transform`.
      angles: in radians; one, or one for each image.
    """
    with tf.name_scope(name or "rotate"):
        images = tf.convert_to_tensor(images)
        shape = tf.cast(tf.shape(_to_batch(images)), tf.float32)
        turns = angles_to_projective_transforms(angles, shape[1], shape[2])
        return transform(images, turns, interpolation)


def translate(
    images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None
) -> Any:
    """Images moved by (dx, dy) places.

    Args:
      images, interpolation, name: see `transform`.
      translations: [2], or [b, 2].
    """
    with tf.name_scope(name or "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def angles_to_projective_transforms(
    angles: Any, image_height: Any, image_width: Any, name: str | None = None
) -> Any:
    """[b, 8] transforms that turn images of a size about their centres."""
    with tf.name_scope(name or "angles_to_projective_transforms"):
        angles = tf.reshape(tf.cast(angles, tf.float32), [-1])
        middle_x = (tf.cast(image_width, tf.float32) - 1) / 2
        middle_y = (tf.cast(image_height, tf.float32) - 1) / 2
        cos, sin, zeros = tf.cos(angles), tf.sin(angles), tf.zeros_like(angles)
        offset_x = middle_x - cos * middle_x + sin * middle_y
        offset_y = middle_y - sin * middle_x - cos * middle_y
        return tf.stack([cos, -sin, offset_x, sin, cos, offset_y, zeros, zeros], 1)


def translations_to_projective_transforms(translations: Any, name: str | None = None) -> Any:
    """[b, 8] transforms that move images by (dx, dy)."""
    with tf.name_scope(name or "translations_to_projective_transforms"):
        moves = tf.reshape(tf.cast(translations, tf.float32), [-1, 2])
        zeros = tf.zeros_like(moves[:, 0])
        ones = tf.ones_like(zeros)
        columns = [ones, zeros, -moves[:, 0], zeros, ones, -moves[:, 1], zeros, zeros]
        return tf.stack(columns, 1)


def flat_transforms_to_matrices(transforms: Any) -> Any:
    """[b, 8] transforms as [b, 3, 3] matrices."""
    flat = tf.reshape(tf.cast(transforms, tf.float32), [-1, 8])
    return tf.reshape(tf.concat([flat, tf.ones_like(flat[:, :1])], 1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: Any) -> Any:
    """[b, 3, 3] matrices as [b, 8] transforms."""
    flat = tf.reshape(tf.cast(transform_matrices, tf.float32), [-1, 9])
    return (flat / flat[:, 8:])[:, :8]


def compose_transforms(*transforms: Any) -> Any:
    """One transform that does what all do, the first of them first."""
    if not transforms:
        raise InvalidSetting("compose_transforms got no transforms. Give at least one.")
    found = flat_transforms_to_matrices(transforms[0])
    for each in transforms[1:]:
        found = tf.matmul(found, flat_transforms_to_matrices(each))
    return matrices_to_flat_transforms(found)


__getattr__ = missing_names.getattr_for("tf.contrib.image", __all__)
