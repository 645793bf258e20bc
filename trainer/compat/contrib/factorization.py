"""tf.contrib.factorization: k-means clustering."""

from trainer.compat import contrib_missing_names
from trainer.compat.imports.canned_internals import kmeans

__all__ = ["KMeansClustering"]

KMeansClustering = kmeans.KMeansClustering

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.factorization", __all__)
