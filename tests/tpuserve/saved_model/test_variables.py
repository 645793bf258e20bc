import pytest

from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import variables
from tpuserve.saved_model.variables import DeclaredVariable


def node(
    *sizes: int, dtype: int = 1, op: str = "VarHandleOp", name: str = "w", shared_name: str = ""
) -> pb.NodeDef:
    proto = pb.NodeDef(name=name, op=op, attr={"dtype": pb.AttrValue(type=dtype)})  # type: ignore[arg-type]
    proto.attr["shape"].shape.dim.extend(pb.TensorShapeProto.Dim(size=size) for size in sizes)
    proto.attr["shared_name"].s = shared_name.encode()
    return proto


def test_bytes_are_the_number_of_elements_times_the_element_size() -> None:
    nodes = [node(784, 10, name="kernel"), node(10, dtype=19, name="bias", op="VariableV2")]
    assert variables.declared_variables(nodes) == (
        DeclaredVariable("bias", "float16", (10,), 20),
        DeclaredVariable("kernel", "float32", (784, 10), 31360),
    )


def test_variable_has_its_shared_name_and_is_listed_once() -> None:
    nodes = [node(2, name="w_handle", shared_name="w"), node(2, name="w2", shared_name="w")]
    assert [variable.name for variable in variables.declared_variables(nodes)] == ["w"]


def test_other_nodes_are_no_variables() -> None:
    assert variables.declared_variables([pb.NodeDef(name="x", op="Placeholder")]) == ()


@pytest.mark.parametrize(
    ("sizes", "dtype", "expected"),
    [
        ((), 2, 8),
        ((0, 5), 1, 0),
        ((-1, 5), 1, None),
        ((3,), 7, None),
        ((3,), 99, None),
        ((2**62,) * 9, 1, None),
    ],
)
def test_bytes_are_unknown_if_shape_or_type_do_not_fix_them(
    sizes: tuple[int, ...], dtype: int, expected: int | None
) -> None:
    (variable,) = variables.declared_variables([node(*sizes, dtype=dtype)])
    assert variable.bytes == expected


def test_variable_of_unknown_rank_has_no_shape() -> None:
    proto = node()
    proto.attr["shape"].shape.unknown_rank = True
    (variable,) = variables.declared_variables([proto])
    assert (variable.shape, variable.bytes) == (None, None)
