"""tf.contrib.framework: arg_scope, and functions for variables, checkpoints and tensors."""

from tensorflow import argsort, is_tensor, sort
from tensorflow.compat.v1.train import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
)
from tensorflow.python.framework.smart_cond import smart_case, smart_cond, smart_constant_value
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec, TensorSpec
from tensorflow.python.ops.array_ops import invert_permutation
from tensorflow.python.ops.check_ops import assert_same_float_dtype
from tensorflow.python.ops.critical_section_ops import CriticalSection
from tensorflow.python.ops.init_ops import (
    convolutional_delta_orthogonal,
    convolutional_orthogonal_1d,
    convolutional_orthogonal_2d,
    convolutional_orthogonal_3d,
)
from tensorflow.python.util import nest
from tensorflow.python.util.deprecation import (
    deprecated,
    deprecated_arg_values,
    deprecated_args,
)

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.framework.arg_scope import (
    add_arg_scope,
    arg_scope,
    arg_scope_func_key,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)
from trainer.compat.contrib.framework.checkpoints import (
    assign_from_checkpoint,
    assign_from_checkpoint_fn,
    assign_from_values,
    assign_from_values_fn,
    init_from_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)
from trainer.compat.contrib.framework.tensors import (
    assert_scalar,
    assert_scalar_int,
    convert_to_tensor_or_sparse_tensor,
    get_name_scope,
    get_placeholders,
    reduce_sum_n,
    remove_squeezable_dimensions,
    with_same_shape,
    with_shape,
)
from trainer.compat.contrib.framework.variables import (
    add_model_variable,
    assert_or_get_global_step,
    filter_variables,
    get_local_variables,
    get_model_variables,
    get_trainable_variables,
    get_unique_variable,
    get_variable_full_name,
    get_variables,
    get_variables_by_name,
    get_variables_by_suffix,
    get_variables_to_restore,
    global_variable,
    local_variable,
    model_variable,
    variable,
    zero_initializer,
)

__all__ = [
    "BoundedTensorSpec",
    "CriticalSection",
    "TensorSpec",
    "add_arg_scope",
    "add_model_variable",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "argsort",
    "assert_global_step",
    "assert_or_get_global_step",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_scalar_int",
    "assign_from_checkpoint",
    "assign_from_checkpoint_fn",
    "assign_from_values",
    "assign_from_values_fn",
    "convert_to_tensor_or_sparse_tensor",
    "convolutional_delta_orthogonal",
    "convolutional_orthogonal_1d",
    "convolutional_orthogonal_2d",
    "convolutional_orthogonal_3d",
    "create_global_step",
    "current_arg_scope",
    "deprecated",
    "deprecated_arg_values",
    "deprecated_args",
    "filter_variables",
    "get_global_step",
    "get_local_variables",
    "get_model_variables",
    "get_name_scope",
    "get_or_create_global_step",
    "get_placeholders",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variable_full_name",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "global_variable",
    "has_arg_scope",
    "init_from_checkpoint",
    "invert_permutation",
    "is_tensor",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "local_variable",
    "model_variable",
    "nest",
    "reduce_sum_n",
    "remove_squeezable_dimensions",
    "smart_case",
    "smart_cond",
    "smart_constant_value",
    "sort",
    "variable",
    "with_same_shape",
    "with_shape",
    "zero_initializer",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.framework", __all__)
