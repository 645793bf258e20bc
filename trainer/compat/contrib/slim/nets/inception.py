"""tf.contrib.slim.nets.inception: Inception v3 with slim's variable names.

Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names
from trainer.compat.contrib import layers
from trainer.compat.contrib.framework import arg_scope
from trainer.compat.contrib.slim.nets.inception_blocks import BLOCKS, STEM, LayerSpec

__all__ = ["inception_v3", "inception_v3_arg_scope", "inception_v3_base"]

v1 = tf.compat.v1

# Arguments for a convolution that returns logits: no activation and no batch normalization.
_LINEAR: Mapping[str, Any] = {"activation_fn": None, "normalizer_fn": None}


def inception_v3_arg_scope(
    weight_decay: float = 0.00004,
    batch_norm_var_collection: str = "moving_vars",
    batch_norm_decay: float = 0.9997,
    batch_norm_epsilon: float = 0.001,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    use_fused_batchnorm: bool = True,
) -> Any:
    """Return a scope for `arg_scope` that sets the layers' default arguments for Inception v3.

    Args:
      batch_norm_decay: factor of the previous moving average in each update, from 0 to 1.
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
    """Build the first part of Inception v3, without the classifiers, up to a named endpoint.

    The endpoints are the layers and blocks of the network.

    Args:
      depth_multiplier: factor of the number of filters of all layers; above 0.

    Returns:
      The output of the last endpoint, float [b, height, width, c], and a dict of endpoint
      name → output.
    """
    if depth_multiplier <= 0:
        raise InvalidSetting(
            f"inception_v3 got depth_multiplier={depth_multiplier}. Use more than 0."
        )
    depth = _depth_function(min_depth, depth_multiplier)
    endpoints: dict[str, Any] = {}
    with v1.variable_scope(scope, "InceptionV3", [inputs]):
        net = inputs
        for name, build_endpoint in _endpoint_builders(depth):
            endpoints[name] = net = build_endpoint(net)
            if name == final_endpoint:
                return net, endpoints
    raise InvalidSetting(
        f"Inception v3 has no endpoint {final_endpoint!r}. Use one of {', '.join(endpoints)}."
    )


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
    """Build Inception v3 with its two classifiers, the final one and an auxiliary one.

    Args:
      inputs: float [b, height, width, 3]; height and width are 299 in the paper.
      depth_multiplier: factor of the number of filters of all layers; above 0.
      spatial_squeeze: whether to remove the dimensions of height and width, of size 1, from the
        logits.

    Returns:
      The logits, float [b, num_classes], or [b, 1, 1, num_classes] without spatial_squeeze; and a
      dict of endpoint name → output. "AuxLogits" has the logits of the auxiliary classifier.
    """
    depth = _depth_function(min_depth, depth_multiplier)
    scopes = [layers.batch_norm, layers.dropout]
    with (
        v1.variable_scope(scope, "InceptionV3", [inputs, num_classes], reuse=reuse) as net_scope,
        arg_scope(scopes, is_training=is_training),
    ):
        net, endpoints = inception_v3_base(
            inputs, min_depth=min_depth, depth_multiplier=depth_multiplier, scope=net_scope
        )
        aux_logits = _build_aux_logits(endpoints["Mixed_6e"], num_classes, depth)
        endpoints["AuxLogits"] = _squeeze(aux_logits) if spatial_squeeze else aux_logits
        with v1.variable_scope("Logits"):
            size = _clip_kernel_size(net, [8, 8])
            name = f"AvgPool_1a_{size[0]}x{size[1]}"
            net = layers.avg_pool2d(net, size, padding="VALID", scope=name)
            net = layers.dropout(net, keep_prob=dropout_keep_prob, scope="Dropout_1b")
            endpoints["PreLogits"] = net
            logits = layers.conv2d(net, num_classes, [1, 1], scope="Conv2d_1c_1x1", **_LINEAR)
            if spatial_squeeze:
                logits = _squeeze(logits)
        endpoints["Logits"] = logits
        endpoints["Predictions"] = prediction_fn(logits, scope="Predictions")
    return logits, endpoints


inception_v3.default_image_size = 299  # type: ignore[attr-defined]


def _build_aux_logits(net: Any, num_classes: int, depth: Callable[[int], int]) -> Any:
    """Build the auxiliary classifier, a second output for training, and return its logits."""
    with v1.variable_scope("AuxLogits"), _stride_one_scope("SAME"):
        net = layers.avg_pool2d(net, [5, 5], stride=3, padding="VALID", scope="AvgPool_1a_5x5")
        net = layers.conv2d(
            net,
            depth(128),
            [1, 1],
            weights_initializer=_truncated_normal(0.01),
            scope="Conv2d_1b_1x1",
        )
        size = _clip_kernel_size(net, [5, 5])
        net = layers.conv2d(
            net,
            depth(768),
            size,
            padding="VALID",
            weights_initializer=_truncated_normal(0.01),
            scope=f"Conv2d_2a_{size[0]}x{size[1]}",
        )
        return layers.conv2d(
            net,
            num_classes,
            [1, 1],
            weights_initializer=_truncated_normal(0.001),
            scope="Conv2d_2b_1x1",
            **_LINEAR,
        )


def _depth_function(min_depth: int, multiplier: float) -> Callable[[int], int]:
    """Return a function that scales a layer's number of filters."""
    return lambda depth: max(int(depth * multiplier), min_depth)


def _endpoint_builders(depth: Callable[[int], int]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield (name, function) for each endpoint of Inception v3, in the order of the network."""
    for layer in STEM:
        yield layer.name, functools.partial(_build_layer, layer=layer, depth=depth, padding="VALID")
    for name, branches in BLOCKS.items():
        yield name, functools.partial(_build_block, name=name, branches=branches, depth=depth)


def _build_block(net: Any, name: str, branches: Any, depth: Callable[[int], int]) -> Any:
    """Build a block of Inception v3, whose branches process the same input."""
    with v1.variable_scope(name):
        outputs = []
        for number, branch in enumerate(branches):
            with v1.variable_scope(f"Branch_{number}"):
                outputs.append(_build_branch(net, branch, depth))
        return tf.concat(outputs, 3)


def _build_branch(net: Any, branch: Any, depth: Callable[[int], int]) -> Any:
    """Build the layers of one branch of a block, and return the last layer's output."""
    for layer in branch:
        if isinstance(layer, tuple):
            # A tuple describes two layers with the same input. Concatenate their outputs along the
            # channels.
            net = tf.concat([_build_layer(net, part, depth, "SAME") for part in layer], 3)
        else:
            net = _build_layer(net, layer, depth, "SAME")
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
    """Return an arg_scope for convolution and pooling layers that sets two default arguments."""
    windowed_layers = [layers.conv2d, layers.max_pool2d, layers.avg_pool2d]
    return arg_scope(windowed_layers, stride=1, padding=padding)


def _clip_kernel_size(net: Any, size: list[int]) -> list[int]:
    """Return a kernel's size, limited to the height and width of the layer's input."""
    height_and_width = net.shape.as_list()[1:3]
    return [
        window if pixels is None else min(pixels, window)
        for pixels, window in zip(height_and_width, size, strict=True)
    ]


def _truncated_normal(deviation: float) -> Any:
    return v1.truncated_normal_initializer(0.0, deviation)


def _squeeze(logits: Any) -> Any:
    """Remove the dimensions of height and width from logits, [b, 1, 1, classes]."""
    return tf.squeeze(logits, [1, 2], name="SpatialSqueeze")


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.nets.inception", __all__)
