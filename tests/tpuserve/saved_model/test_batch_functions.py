from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import batch_functions


def test_sizes_of_all_batch_functions_are_returned_without_duplicates() -> None:
    graph = pb.GraphDef()
    graph.node.add(op="BatchFunction").attr["allowed_batch_sizes"].list.i.extend([8, 2])
    within = graph.library.function.add().node_def
    within.add(op="BatchFunction").attr["allowed_batch_sizes"].list.i.extend([2, 4])
    within.add(op="Other").attr["allowed_batch_sizes"].list.i.append(16)
    assert batch_functions.allowed_batch_sizes(graph) == (2, 4, 8)
    assert batch_functions.allowed_batch_sizes(pb.GraphDef()) == ()
