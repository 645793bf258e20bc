"""The models of the zoo."""

from tests.zoo import (
    image_models,
    keras_applications,
    other_models,
    published_models,
    sequence_models,
    text_models,
    version_1_models,
)

ALL = (
    *keras_applications.ALL,
    *sequence_models.ALL,
    *image_models.ALL,
    *text_models.ALL,
    *other_models.ALL,
    *version_1_models.ALL,
    *published_models.ALL,
)

# The models that CI converts: small graphs, with one for each kind of host ops.
IN_CI = (
    sequence_models.GRU,
    image_models.JPEG_CLASSIFIER,
    image_models.DETECTOR,
    text_models.TEXT_CLASSIFIER,
    other_models.FROZEN,
    version_1_models.SEQ2SEQ,
)
