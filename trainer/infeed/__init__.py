"""The host side of feeding a TPU: from an input_fn to the tensors that each replica gets.

`build` takes the batches of every input pipeline apart, one shard for each replica, and enqueues
each shard on the replica's own core. A file each: how a batch is nested (`structure`), what a TPU
can take (`admission`), batches of fewer rows than the others (`batches`), where a pipeline's
tensors come from (`source`), who gets which part (`shards`), parts of one tensor for the cores of
one replica (`partition`).
"""

from trainer.infeed.feed import Batch, Infeed, build

__all__ = ["Batch", "Infeed", "build"]
