"""tf.contrib.image: rotation, translation and projective transforms of images.

A flat transform is a float [8] or [b, 8] tensor, (a0, a1, a2, b0, b1, b2, c0, c1).
"""

from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names

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
    """Apply projective transforms to images; pixels from beyond the edge are 0.

    Args:
      images: [h, w], [h, w, c] or [b, h, w, c].
      transforms: flat transforms, [8] or [b, 8], which map pixels of the result to pixels of the
        images; see the module's docstring for the formula.
      output_shape: height and width of the result in pixels; those of the images by default.
    """
    with tf.name_scope(name or "transform"):
        images = tf.convert_to_tensor(images)
        batch = _to_batch(images)
        transforms = tf.convert_to_tensor(transforms, tf.float32)
        if transforms.shape.rank == 1:
            transforms = transforms[None]
        if output_shape is None:
            output_shape = tf.shape(batch)[1:3]
        transformed = tf.raw_ops.ImageProjectiveTransformV3(
            images=batch,
            transforms=transforms,
            output_shape=tf.cast(output_shape, tf.int32),
            fill_value=0.0,
            interpolation=interpolation.upper(),
        )
        size = tf.get_static_value(output_shape)
        height_and_width = batch.shape[1:3] if size is None else size
        transformed.set_shape([batch.shape[0], *height_and_width, batch.shape[3]])
        rank = images.shape.rank
        return (
            transformed if rank == 4 else transformed[0] if rank == 3 else transformed[0, :, :, 0]
        )


def _to_batch(images: Any) -> Any:
    """Reshape images of rank 2 or 3 to [b, h, w, c] by adding dimensions of size 1."""
    rank = images.shape.rank
    if rank not in (2, 3, 4):
        raise InvalidSetting(
            f"Images of shape {images.shape} are not supported. Give images of shape [h, w], "
            f"[h, w, c] or [b, h, w, c]."
        )
    return images[None, :, :, None] if rank == 2 else images[None] if rank == 3 else images


def rotate(
    images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None
) -> Any:
    """Rotate images counterclockwise about their centres.

    Args:
      angles: in radians; a scalar, or [b] for one angle per image.
    """
    with tf.name_scope(name or "rotate"):
        images = tf.convert_to_tensor(images)
        shape = tf.cast(tf.shape(_to_batch(images)), tf.float32)
        rotations = angles_to_projective_transforms(angles, shape[1], shape[2])
        return transform(images, rotations, interpolation)


def translate(
    images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None
) -> Any:
    """Translate images by (dx, dy) pixels."""
    with tf.name_scope(name or "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def angles_to_projective_transforms(
    angles: Any, image_height: Any, image_width: Any, name: str | None = None
) -> Any:
    """Return transforms, [b, 8], with which `transform` rotates images about their centres.

    Args:
      angles: in radians, counterclockwise; a scalar or [b].
    """
    with tf.name_scope(name or "angles_to_projective_transforms"):
        angles = tf.reshape(tf.cast(angles, tf.float32), [-1])
        center_x = (tf.cast(image_width, tf.float32) - 1) / 2
        center_y = (tf.cast(image_height, tf.float32) - 1) / 2
        cos, sin, zeros = tf.cos(angles), tf.sin(angles), tf.zeros_like(angles)
        offset_x = center_x - cos * center_x + sin * center_y
        offset_y = center_y - sin * center_x - cos * center_y
        return tf.stack([cos, -sin, offset_x, sin, cos, offset_y, zeros, zeros], 1)


def translations_to_projective_transforms(translations: Any, name: str | None = None) -> Any:
    """Return transforms, [b, 8], with which the function `transform` translates images.

    Args:
      translations: (dx, dy) in pixels; [2] or [b, 2].
    """
    with tf.name_scope(name or "translations_to_projective_transforms"):
        offsets = tf.reshape(tf.cast(translations, tf.float32), [-1, 2])
        zeros = tf.zeros_like(offsets[:, 0])
        ones = tf.ones_like(zeros)
        columns = [ones, zeros, -offsets[:, 0], zeros, ones, -offsets[:, 1], zeros, zeros]
        return tf.stack(columns, 1)


def flat_transforms_to_matrices(transforms: Any) -> Any:
    """Convert flat transforms to 3x3 matrices.

    Args:
      transforms: float [8] or [b, 8], in the form that `transform` takes.
    """
    flat = tf.reshape(tf.cast(transforms, tf.float32), [-1, 8])
    return tf.reshape(tf.concat([flat, tf.ones_like(flat[:, :1])], 1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: Any) -> Any:
    """Convert 3x3 matrices to flat transforms.

    Returns:
      Float [b, 8], in the form that `transform` takes.
    """
    flat = tf.reshape(tf.cast(transform_matrices, tf.float32), [-1, 9])
    return (flat / flat[:, 8:])[:, :8]


def compose_transforms(*transforms: Any) -> Any:
    """Compose several transforms, [8] or [b, 8] each, into one, [b, 8].

    The result has the effect of the transforms one after the other, in the order of the arguments.
    """
    if not transforms:
        raise InvalidSetting("compose_transforms got no transforms. Pass at least one.")
    product = flat_transforms_to_matrices(transforms[0])
    for flat in transforms[1:]:
        product = tf.matmul(product, flat_transforms_to_matrices(flat))
    return matrices_to_flat_transforms(product)


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.image", __all__)
