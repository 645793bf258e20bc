"""tf.contrib.slim.nets.inception: Inception v3, with the original's names of variables.

Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import layers
from trainer.compat.contrib.framework import arg_scope
from trainer.compat.contrib.slim.nets.inception_blocks import BLOCKS, STEM, LayerSpec
from trainer.compat.contrib_names import missing_names

__all__ = ["inception_v3", "inception_v3_arg_scope", "inception_v3_base"]

v1 = tf.compat.v1


def inception_v3_arg_scope(
    weight_decay: float = 0.00004,
    batch_norm_var_collection: str = "moving_vars",
    batch_norm_decay: float = 0.9997,
    batch_norm_epsilon: float = 0.001,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    use_fused_batchnorm: bool = True,
) -> Any:
    """The defaults that the net is trained with, for `arg_scope`.

    Args:
      weight_decay: of the weights of every layer.
      batch_norm_var_collection: where moving means and variances go.
      batch_norm_decay, batch_norm_epsilon, updates_collections: see batch_norm.
      use_fused_batchnorm: whether batch norm is one op.
    """
    moving = [batch_norm_var_collection]
    normalization = {
        "decay": batch_norm_decay,
        "epsilon": batch_norm_epsilon,
        "updates_collections": updates_collections,
        "fused": use_fused_batchnorm,
        "variables_collections": {
            "beta": None,
            "gamma": None,
            "moving_mean": moving,
            "moving_variance": moving,
        },
    }
    regularizer = layers.l2_regularizer(weight_decay)
    with (
        arg_scope([layers.conv2d, layers.fully_connected], weights_regularizer=regularizer),
        arg_scope(
            [layers.conv2d],
            weights_initializer=layers.variance_scaling_initializer(),
            activation_fn=tf.nn.relu,
            normalizer_fn=layers.batch_norm,
            normalizer_params=normalization,
        ) as scope,
    ):
        return scope


def inception_v3_base(
    inputs: Any,
    final_endpoint: str = "Mixed_7c",
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    scope: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """The net without its heads, up to a point, and every point on the way by its name.

    Args:
      inputs: [b, height, width, 3].
      final_endpoint: the last point: "Conv2d_1a_3x3" to "Mixed_7c".
      min_depth: the fewest filters of a layer.
      depth_multiplier: multiple of the filters of all layers.
      scope: "InceptionV3" by default.

    Raises:
      InvalidSetting: there is no such point, or the multiple is not above 0.
    """
    if depth_multiplier <= 0:
        raise InvalidSetting(f"depth_multiplier is {depth_multiplier}. Give more than 0.")
    depth = _depth_function(min_depth, depth_multiplier)
    points: dict[str, Any] = {}
    with v1.variable_scope(scope, "InceptionV3", [inputs]):
        net = inputs
        for name, made in _endpoint_builders(depth):
            points[name] = net = made(net)
            if name == final_endpoint:
                return net, points
    raise InvalidSetting(f"there is no {final_endpoint!r}. Give one of {', '.join(points)}.")


def inception_v3(
    inputs: Any,
    num_classes: int = 1000,
    is_training: Any = True,
    dropout_keep_prob: float = 0.8,
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    prediction_fn: Callable[..., Any] = layers.softmax,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "InceptionV3",
) -> tuple[Any, dict[str, Any]]:
    """[b, num_classes] logits, and every point on the way by its name.

    Args:
      inputs: [b, 299, 299, 3] pictures; other sizes as well.
      num_classes: how many logits; also of those at "AuxLogits", half way.
      is_training: whether it drops out, and normalises by the batch.
      dropout_keep_prob: share of what is kept before the last layer.
      min_depth, depth_multiplier: see `inception_v3_base`.
      prediction_fn: makes "Predictions" of the logits.
      spatial_squeeze: whether logits lose their two dimensions of places.
      reuse, scope: of the variables.
    """
    depth = _depth_function(min_depth, depth_multiplier)
    scopes = [layers.batch_norm, layers.dropout]
    with (
        v1.variable_scope(scope, "InceptionV3", [inputs, num_classes], reuse=reuse) as found,
        arg_scope(scopes, is_training=is_training),
    ):
        net, points = inception_v3_base(
            inputs, min_depth=min_depth, depth_multiplier=depth_multiplier, scope=found
        )
        plain = {"activation_fn": None, "normalizer_fn": None}
        with v1.variable_scope("AuxLogits"), _stride_one_scope("SAME"):
            small = {"weights_initializer": _truncated_normal(0.01)}
            aux = layers.avg_pool2d(
                points["Mixed_6e"], [5, 5], stride=3, padding="VALID", scope="AvgPool_1a_5x5"
            )
            aux = layers.conv2d(aux, depth(128), [1, 1], scope="Conv2d_1b_1x1", **small)
            size = _clip_kernel_size(aux, [5, 5])
            wide = {"padding": "VALID", "weights_initializer": _truncated_normal(0.01)}
            name = f"Conv2d_2a_{size[0]}x{size[1]}"
            aux = layers.conv2d(aux, depth(768), size, scope=name, **wide)
            aux = layers.conv2d(
                aux,
                num_classes,
                [1, 1],
                weights_initializer=_truncated_normal(0.001),
                scope="Conv2d_2b_1x1",
                **plain,
            )
            points["AuxLogits"] = _squeeze(aux) if spatial_squeeze else aux
        with v1.variable_scope("Logits"):
            size = _clip_kernel_size(net, [8, 8])
            name = f"AvgPool_1a_{size[0]}x{size[1]}"
            net = layers.avg_pool2d(net, size, padding="VALID", scope=name)
            net = layers.dropout(net, keep_prob=dropout_keep_prob, scope="Dropout_1b")
            points["PreLogits"] = net
            logits = layers.conv2d(net, num_classes, [1, 1], scope="Conv2d_1c_1x1", **plain)
            if spatial_squeeze:
                logits = _squeeze(logits)
        points["Logits"] = logits
        points["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, points


inception_v3.default_image_size = 299  # type: ignore[attr-defined]


def _depth_function(least: int, multiple: float) -> Callable[[int], int]:
    return lambda depth: max(int(depth * multiple), least)


def _endpoint_builders(depth: Callable[[int], int]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Each point's name, and what makes it of the one before it."""
    for layer in STEM:
        yield layer.name, functools.partial(_build_layer, layer=layer, depth=depth, padding="VALID")
    for name, branches in BLOCKS.items():
        yield name, functools.partial(_build_block, name=name, branches=branches, depth=depth)


def _build_block(net: Any, name: str, branches: Any, depth: Callable[[int], int]) -> Any:
    with v1.variable_scope(name):
        results = []
        for number, branch in enumerate(branches):
            with v1.variable_scope(f"Branch_{number}"):
                results.append(_build_branch(net, branch, depth))
        return tf.concat(results, 3)


def _build_branch(net: Any, branch: Any, depth: Callable[[int], int]) -> Any:
    for each in branch:
        if isinstance(each, tuple):
            # Two layers side by side, as the last of a branch.
            net = tf.concat([_build_layer(net, one, depth, "SAME") for one in each], 3)
        else:
            net = _build_layer(net, each, depth, "SAME")
    return net


def _build_layer(net: Any, layer: LayerSpec, depth: Callable[[int], int], padding: str) -> Any:
    with _stride_one_scope(layer.padding or padding):
        size, stride, scope = list(layer.kernel), layer.stride, layer.name
        if layer.name.startswith("MaxPool"):
            return layers.max_pool2d(net, size, stride=stride, scope=scope)
        if layer.name.startswith("AvgPool"):
            return layers.avg_pool2d(net, size, stride=stride, scope=scope)
        return layers.conv2d(net, depth(layer.filters), size, stride=stride, scope=scope)


def _stride_one_scope(padding: str) -> Any:
    moving = [layers.conv2d, layers.max_pool2d, layers.avg_pool2d]
    return arg_scope(moving, stride=1, padding=padding)


def _clip_kernel_size(net: Any, size: list[int]) -> list[int]:
    """A window no larger than the net has places, as far as that is known."""
    places = net.shape.as_list()[1:3]
    return [
        most if found is None else min(found, most)
        for found, most in zip(places, size, strict=True)
    ]


def _truncated_normal(deviation: float) -> Any:
    return v1.truncated_normal_initializer(0.0, deviation)


def _squeeze(logits: Any) -> Any:
    return tf.squeeze(logits, [1, 2], name="SpatialSqueeze")


__getattr__ = missing_names.getattr_for("tf.contrib.slim.nets.inception", __all__)
