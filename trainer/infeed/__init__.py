"""The host side of a TPU's infeed: from an input_fn to the tensors that each replica receives.

`build_infeed` splits the batches of every input pipeline into shards, one for each replica, and
enqueues each shard on the replica's own core. An input pipeline is one call of input_fn with its
Dataset. The modules: `tensor_nest` flattens a batch, and `validation` refuses tensors that a TPU
cannot take. `final_batch_padding` fills batches that are too small. `input_source` reads one
pipeline. `shards` divides a batch among replicas, and `partition` divides a tensor among the cores
of one replica.
"""

from trainer.infeed.feed import Batch, Infeed, build_infeed

__all__ = ["Batch", "Infeed", "build_infeed"]
