"""Feeds the batches of an input_fn through a TPU's infeed to the replicas.

`build_infeed` calls input_fn once or more; each call builds one input pipeline. Then `build_infeed`
builds ops that split the batches of every pipeline into shards, one for each replica, and enqueue
each shard on the replica's own core. The module `tensor_nest` flattens a batch, and `validation`
refuses tensors that a TPU cannot take. `final_batch_padding` fills batches that are too small.
`input_source` reads one pipeline. `shards` divides a batch among replicas, and `partition` divides
a tensor among the cores of one replica.
"""

from trainer.infeed.feed import Infeed, ReplicaBatch, build_infeed

__all__ = ["ReplicaBatch", "Infeed", "build_infeed"]
