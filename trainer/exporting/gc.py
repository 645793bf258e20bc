"""Removes old exports, so that only the newest exports are kept."""

import logging

import tensorflow as tf

from tpuserve import validation
from tpuserve.export import versions

logger = logging.getLogger("tensorflow.trainer")


def check_exports_to_keep(exports_to_keep: int | None) -> None:
    """Check that the number of exports to keep is a positive whole number, or None for all."""
    validation.check_integer("exports_to_keep", exports_to_keep, least=1, optional=True)


def remove_old_exports(directory: str, exports_to_keep: int | None) -> list[str]:
    """Remove all exports of a directory except the newest exports.

    An export is a version directory, whose name has ten digits.
    """
    if exports_to_keep is None or not tf.io.gfile.isdir(directory):
        return []
    removed = []
    for name in versions.list_versions(directory)[:-exports_to_keep]:
        path = tf.io.gfile.join(directory, name)
        if not tf.io.gfile.isdir(path):
            continue
        try:
            tf.io.gfile.rmtree(path)
        except tf.errors.OpError as error:
            logger.warning("cannot remove the old export %s: %s", path, error)
        else:
            removed.append(path)
    return removed
