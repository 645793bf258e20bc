"""Compares the inputs of all hosts, each of which calls input_fn in its own process."""

from tpuserve.errors import HostsDiffer
from trainer.hosts.group import current_group
from trainer.infeed.tensor_nest import TensorNest


def check_same_input(nest: TensorNest) -> None:
    """Check that the batches of all hosts have the same tensors, in the same order."""
    hosts = current_group()
    if hosts.size == 1:
        return
    tensors = hosts.gather("the tensors of the input", [str(leaf) for leaf in nest.leaves])
    for host, others in enumerate(tensors):
        if others != tensors[0]:
            extra = [tensor for tensor in others if tensor not in tensors[0]]
            missing = [tensor for tensor in tensors[0] if tensor not in others]
            raise HostsDiffer(
                f"input_fn gave other tensors on {hosts.describe(host)} than on "
                f"{hosts.describe(0)}: {', '.join(extra) or 'none'} in place of "
                f"{', '.join(missing) or 'none'}. Every host must give the same names, types and "
                f"shapes: all replicas run one program."
            )
