"""Removal of old exports: what a directory of versions keeps."""

import logging

import tensorflow as tf

from tpuserve.export.files import versions
from trainer.config import validation

logger = logging.getLogger("tensorflow.trainer")


def check_exports_to_keep(exports_to_keep: int | None) -> None:
    """Refuses a number of exports to keep that is no positive whole number, nor None for all.

    Raises:
      InvalidSetting: shows the number.
    """
    validation.check("exports_to_keep", exports_to_keep, least=1)


def remove_old_exports(directory: str, exports_to_keep: int | None) -> list[str]:
    """Removes all but the newest exports of a directory; returns what it has removed.

    Only directories named by ten digits, as exports are, count and are touched. One that cannot
    be removed is left for the next time: an old export must not end a training.

    Args:
      directory: where the exports are; one that does not exist holds none.
      exports_to_keep: how many stay; None keeps all.
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
