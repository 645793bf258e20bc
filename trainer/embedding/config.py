"""The settings of embedding tables: TableConfig, FeatureConfig and EmbeddingConfigSpec.

Names, arguments, defaults and checks are those of TensorFlow 2.15
(tensorflow/python/tpu/tpu_embedding.py and tensorflow_estimator's _tpu_estimator_embedding.py).
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.graph.row_sharding import DIV, STRATEGIES
from trainer.config.namedtuple_compat import NamedTupleMixin
from trainer.embedding.optimization_parameters import OptimizationParameters
from trainer.tensorflow_internals import (
    get_private_attribute,
    tpu_feature_column,
    tpu_feature_column_v2,
)

# The names of the classes that choose an optimizer, for error messages.
_PARAMETERS = (
    "AdagradParameters, AdamParameters, FtrlParameters, StochasticGradientDescentParameters or "
    "the parameters of another optimizer of trainer"
)
COMBINERS = ("mean", "sum", "sqrtn", None)
# The classes of TensorFlow's ordinary embedding and numeric columns. An EmbeddingConfigSpec with
# such columns works only off the TPU.
_OTHER_COLUMNS = ("EmbeddingColumn", "SharedEmbeddingColumn", "NumericColumn")


@dataclass(frozen=True, eq=False)
class TableConfig(NamedTupleMixin):
    """The settings of one table.

    Attributes:
      vocabulary_size: number of rows.
      dimension: number of columns.
      initializer: makes the initial values; by default a truncated normal distribution with the
        standard deviation 1 / sqrt(dimension).
      combiner: how the rows for several ids of one example are combined: "mean", "sum", "sqrtn", or
        None for dense features with one id per example.
      hot_id_replication: accepted for compatibility; has no effect.
      learning_rate: the learning rate of this table; None for the optimizer's learning rate.
      learning_rate_fn: takes the global step and returns the learning rate of this table.
      optimization_parameters: the optimizer of this table; None for the optimizer of the
        EmbeddingConfigSpec.

    Raises:
      InvalidSetting: a value is out of range, or both learning rates are given.
    """

    vocabulary_size: int
    dimension: int
    initializer: Callable[..., Any] | None = None
    combiner: str | None = "mean"
    hot_id_replication: bool = False
    learning_rate: float | None = None
    learning_rate_fn: Callable[[Any], Any] | None = None
    optimization_parameters: OptimizationParameters | None = None

    def __post_init__(self) -> None:
        validation.check_integer("vocabulary_size of a TableConfig", self.vocabulary_size, least=1)
        validation.check_integer("dimension of a TableConfig", self.dimension, least=1)
        if self.initializer is None:
            object.__setattr__(self, "initializer", default_initializer(self.dimension))
        elif not callable(self.initializer):
            raise InvalidSetting(
                f"initializer of a TableConfig is {self.initializer!r}; it must be callable if "
                f"specified, as tf.compat.v1.zeros_initializer() is."
            )
        if self.combiner not in COMBINERS:
            raise InvalidSetting(
                f"combiner of a TableConfig is {self.combiner!r}. It must be 'mean', 'sum', "
                f"'sqrtn' or None."
            )
        if self.learning_rate is not None and self.learning_rate_fn is not None:
            raise InvalidSetting(
                f"learning_rate of a TableConfig is {self.learning_rate}, and learning_rate_fn is "
                f"{self.learning_rate_fn!r}. At most one of learning_rate and learning_rate_fn can "
                f"be set."
            )
        parameters = self.optimization_parameters
        if parameters is not None and not isinstance(parameters, OptimizationParameters):
            raise InvalidSetting(
                f"optimization_parameters of a TableConfig are {parameters!r}. Give {_PARAMETERS}."
            )


@dataclass(frozen=True)
class FeatureConfig(NamedTupleMixin):
    """The settings of one feature whose values are ids of rows of an embedding table.

    Attributes:
      max_sequence_length: for a sequence feature, the number of ids per example that are looked up;
        further ids are ignored, and rows are not combined. 0 for a feature whose rows are combined.
      weight_key: name of the feature with the weights of the ids; None for equal weights.

    Raises:
      InvalidSetting: max_sequence_length is negative or no whole number.
    """

    table_id: str
    max_sequence_length: int = 0
    weight_key: str | None = None

    def __post_init__(self) -> None:
        validation.check_integer(
            "max_sequence_length of a FeatureConfig", self.max_sequence_length, least=0
        )


@dataclass(frozen=True, eq=False)
class EmbeddingConfigSpec(NamedTupleMixin):
    """The embedding tables of a TPUEstimator: its argument `embedding_config_spec`.

    Give either feature_columns, or feature_to_config_dict and table_to_config_dict.

    Attributes:
      feature_columns: results of tf.compat.v1.tpu.experimental.embedding_column and
        shared_embedding_columns. The constructor moves columns whose lookup is a part of the model,
        with embedding_lookup_device="tpu_tensor_core", to `tensor_core_feature_columns`.
      optimization_parameters: the optimizer of the tables. With table_to_config_dict, it may be
        None if each table has its own.
      clipping_limit: the largest absolute value of the tables' entries, for optimizers that have
        neither clip_weight_min nor clip_weight_max; None for no limit.
      pipeline_execution_with_tensor_core: whether a step looks rows up before the previous step has
        updated them, as on a TPU that runs the lookup and the update at the same time.
      experimental_gradient_multiplier_fn: takes the global step, and returns a factor for the
        gradients of all tables.
      partition_strategy: "div" gives each of n replicas consecutive rows, "mod" every n-th row.
      profile_data_directory: accepted for compatibility; has no effect.
      tensor_core_feature_columns: the columns whose lookup is a part of the model, which a TPU's
        core runs; by default those found in feature_columns. None without feature_columns.

    Raises:
      InvalidSetting: an argument is invalid, or the arguments contradict each other.
      InvalidType: a column or a config has a wrong type.
    """

    feature_columns: Any = None
    optimization_parameters: Any = None
    clipping_limit: float | None = None
    pipeline_execution_with_tensor_core: bool = False
    experimental_gradient_multiplier_fn: Callable[[Any], Any] | None = None
    feature_to_config_dict: Mapping[str, FeatureConfig] | None = None
    table_to_config_dict: Mapping[str, TableConfig] | None = None
    partition_strategy: str = DIV
    profile_data_directory: str | None = None
    tensor_core_feature_columns: Any = None

    def __post_init__(self) -> None:
        has_dicts = bool(self.feature_to_config_dict and self.table_to_config_dict)
        if bool(self.feature_columns) == has_dicts:
            raise InvalidSetting(
                f"EmbeddingConfigSpec has feature_columns={self.feature_columns!r:.60}, "
                f"feature_to_config_dict={self.feature_to_config_dict!r:.60} and "
                f"table_to_config_dict={self.table_to_config_dict!r:.60}. Exactly one of "
                f"`feature_columns` and the pair of dicts must be given."
            )
        if self.partition_strategy not in STRATEGIES:
            raise InvalidSetting(
                f'Invalid partition_strategy {self.partition_strategy}. Must be one of "mod" or '
                f'"div".'
            )
        validation.check_number("clipping_limit", self.clipping_limit, above=0, optional=True)
        if self.feature_columns:
            self._check_columns()
        else:
            self._check_dicts()

    def _check_columns(self) -> None:
        if not isinstance(self.optimization_parameters, OptimizationParameters):
            raise InvalidSetting(
                f"optimization_parameters must be an instance of {_PARAMETERS}. They are "
                f"{self.optimization_parameters!r}."
            )
        for column in self.feature_columns:
            if not is_table_column(column) and not _is_other_column(column):
                raise InvalidType(
                    f"feature_columns has {column!r:.200}. All feature columns must be supported "
                    f"types: make them with tf.compat.v1.tpu.experimental.embedding_column or "
                    f"shared_embedding_columns."
                )
        if self.tensor_core_feature_columns is None:
            on_core = [column for column in self.feature_columns if _is_on_tensor_core(column)]
            others = [column for column in self.feature_columns if column not in on_core]
            object.__setattr__(self, "tensor_core_feature_columns", on_core)
            object.__setattr__(self, "feature_columns", others)

    def _check_dicts(self) -> None:
        assert self.feature_to_config_dict is not None
        assert self.table_to_config_dict is not None
        for name, feature in self.feature_to_config_dict.items():
            if not isinstance(feature, FeatureConfig):
                raise InvalidType(
                    f"the config of feature {name!r} is {feature!r}. It must be of type "
                    f"`FeatureConfig`."
                )
            if feature.table_id not in self.table_to_config_dict:
                raise InvalidSetting(
                    f"Feature {name} refers to table {feature.table_id} which is not in the "
                    f"table_to_config_dict. It has {', '.join(self.table_to_config_dict)}."
                )
        used = {feature.table_id for feature in self.feature_to_config_dict.values()}
        for name, table in self.table_to_config_dict.items():
            if not isinstance(table, TableConfig):
                raise InvalidType(
                    f"the config of table {name!r} is {table!r}. It must be of type `TableConfig`."
                )
            if name not in used:
                raise InvalidSetting(
                    f"table_to_config_dict has the table {name!r}, which is not used in "
                    f"feature_to_config_dict. Leave the table out."
                )
            if table.optimization_parameters is None and not isinstance(
                self.optimization_parameters, OptimizationParameters
            ):
                raise InvalidSetting(
                    f"table {name!r} has no optimization_parameters, and those of the "
                    f"EmbeddingConfigSpec are {self.optimization_parameters!r}. Give "
                    f"{_PARAMETERS}."
                )


@dataclass(frozen=True)
class Table:
    """An embedding table that an EmbeddingConfigSpec describes."""

    name: str
    config: TableConfig
    parameters: OptimizationParameters
    features: tuple[str, ...]


@dataclass(frozen=True)
class EmbeddingConfig:
    """The tables and features of an EmbeddingConfigSpec."""

    spec: EmbeddingConfigSpec
    tables: tuple[Table, ...]
    features: Mapping[str, FeatureConfig]
    columns: Mapping[str, Any]

    def table_of(self, feature: str) -> Table:
        """Return the table in which a feature is looked up."""
        name = self.features[feature].table_id
        return next(table for table in self.tables if table.name == name)

    def select(self, names: Container[str]) -> "EmbeddingConfig":
        """Return a config with only some of the features, and with the tables that they use."""
        features = {name: value for name, value in self.features.items() if name in names}
        tables = (
            replace(table, features=tuple(name for name in table.features if name in features))
            for table in self.tables
        )
        return EmbeddingConfig(
            self.spec,
            tuple(table for table in tables if table.features),
            features,
            {name: column for name, column in self.columns.items() if name in features},
        )


def build_config(spec: EmbeddingConfigSpec, *, only_table_columns: bool = False) -> EmbeddingConfig:
    """Return the tables and features of an EmbeddingConfigSpec.

    Args:
      only_table_columns: whether to ignore ordinary TensorFlow feature columns, which a TPU cannot
        look up, instead of raising InvalidType. A model that does not run on a TPU may use them.

    Raises:
      InvalidType: a column is not a column of tf.compat.v1.tpu.experimental.
    """
    columns: dict[str, Any] = {}
    if spec.table_to_config_dict is not None:
        assert spec.feature_to_config_dict is not None
        tables, features = spec.table_to_config_dict, spec.feature_to_config_dict
    else:
        chosen = [
            column
            for column in spec.feature_columns
            if not only_table_columns or is_table_column(column)
        ]
        tables, features = configs_from_columns(chosen)
        columns = {column.get_feature_key_name(): column for column in chosen}
    return EmbeddingConfig(
        spec,
        tuple(
            Table(
                name,
                table,
                table.optimization_parameters or spec.optimization_parameters,
                tuple(sorted(key for key in features if features[key].table_id == name)),
            )
            for name, table in tables.items()
        ),
        features,
        columns,
    )


def configs_from_columns(
    columns: Iterable[Any],
) -> tuple[dict[str, TableConfig], dict[str, FeatureConfig]]:
    """Return the tables and the features that feature columns describe, each by name.

    The name of a table is "tbl_", followed by the result of the column's get_embedding_var_name().

    Raises:
      InvalidType: a column is not a column of tf.compat.v1.tpu.experimental.
    """
    tables: dict[str, TableConfig] = {}
    features: dict[str, FeatureConfig] = {}
    for column in columns:
        if not is_table_column(column):
            raise InvalidType(
                f"Unsupported feature column {column!r:.200} in feature_columns on a TPU. Make it "
                f"with tf.compat.v1.tpu.experimental.embedding_column, or leave it out of "
                f"feature_columns and use it in model_fn."
            )
        feature, table = column.get_feature_key_name(), f"tbl_{column.get_embedding_var_name()}"
        if feature in features:
            raise InvalidSetting(
                f"Feature column {feature} is used with multiple embeddings and this is not "
                f"supported. Give each column a feature of its own, for example a copy that "
                f"input_fn makes."
            )
        features[feature] = FeatureConfig(
            table, column.get_max_sequence_length(), column.get_weight_key_name()
        )
        vocabulary_size, dimension = column.get_embedding_table_size()
        tables[table] = TableConfig(
            vocabulary_size,
            dimension,
            column.get_initializer(),
            column.get_combiner(),
            learning_rate_fn=column.get_learning_rate_fn(),
        )
    return tables, features


def default_initializer(dimension: int) -> Any:
    """Return the initializer of a table whose TableConfig has none."""
    return tf.compat.v1.truncated_normal_initializer(0.0, 1 / math.sqrt(dimension))


def is_table_column(column: Any) -> bool:
    """Return whether a feature column was made by tf.compat.v1.tpu.experimental.

    Only these columns can be looked up in an embedding table on a TPU.
    """
    return isinstance(
        column,
        (
            tpu_feature_column._TPUEmbeddingColumn,
            tpu_feature_column._TPUSharedEmbeddingColumn,
            tpu_feature_column_v2._TPUEmbeddingColumnV2,
            tpu_feature_column_v2._TPUSharedEmbeddingColumnV2,
        ),
    )


def _is_other_column(column: Any) -> bool:
    return any(base.__name__.lstrip("_") in _OTHER_COLUMNS for base in type(column).__mro__)


def _is_on_tensor_core(column: Any) -> bool:
    types = (
        tpu_feature_column_v2._TPUDeviceSpecificEmbeddingColumnV2,
        tpu_feature_column_v2._TPUSharedDeviceSpecificEmbeddingColumnV2,
    )
    if not isinstance(column, types):
        return False
    device = get_private_attribute(column, "_embedding_lookup_device")
    return getattr(device, "name", None) == "TPU_TENSOR_CORE"
