"""The interface of a step part, which adds inputs or outputs to the step of each TPU replica."""

from collections.abc import Sequence
from typing import Any

from trainer.infeed import ReplicaBatch


class StepPart:
    """A kind of data, in addition to the batch, that enters or leaves a replica's step.

    Examples are the tensors of a host_call and of evaluation metrics. A subclass overrides the
    methods that it needs. Some methods build ops inside the TPU computation, as parts of the step.

    1. `dequeue`, in the step: before model_fn.
    2. `step_ops` and `outfeed`, in the step: after model_fn.
    3. `host_ops`, on the host: only if `outfeed` returns tensors. A second call builds the ops for
       steps in which only some replicas have a batch; both calls share their variables.
    4. `hooks`, on the host: once.

    Attributes:
      name: key of the part's tensors in the outfeed; error messages show the name. Each part of a
        step has a different name.
    """

    name: str

    def dequeue(self, batch: ReplicaBatch) -> ReplicaBatch:
        """Return the batch for model_fn, with the data that this part adds to it."""
        return batch

    def step_ops(self, spec: Any) -> Sequence[Any]:
        """Return the ops that this part adds to each step of each replica."""
        return ()

    def outfeed(self, spec: Any, batch: ReplicaBatch) -> Any:
        """Return the tensors that each replica sends to the host.

        Returns:
          A nest of tensors with static shapes of rank 1 or more; None to send nothing. The host
          concatenates the replicas' tensors along the first dimension.
        """
        return None

    def host_ops(self, tensors: Any) -> Any:
        """Build the ops that the host runs with the tensors of one outfeed.

        Args:
          tensors: the tensors that the host receives, nested as `outfeed` returned them. The
            tensors of all replicas are concatenated along the first dimension, without padding.

        Returns:
          A nest of ops and tensors that the host runs for each outfeed; None if `receive` needs
          only the values of `tensors`.
        """
        return None

    def receive(self, values: Any) -> None:
        """Process the values of one outfeed; called in the outfeed thread.

        Args:
          values: the values of the ops and tensors that `host_ops` returned, as numpy arrays. If
            `host_ops` returned None, the values of the tensors that `outfeed` returned.
        """

    def hooks(self) -> Sequence[Any]:
        """Return SessionRunHooks that the session needs for this part."""
        return ()
