"""tf.contrib.slim.tfexample_decoder: TFExampleDecoder, which converts a tf.Example to tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names

__all__ = [
    "BackupHandler",
    "BoundingBox",
    "Image",
    "ItemHandler",
    "ItemHandlerCallback",
    "LookupTensor",
    "SparseTensor",
    "TFExampleDecoder",
    "Tensor",
]

v1 = tf.compat.v1


class ItemHandler:
    """Base class of the objects that build an item from features of a tf.Example.

    An item is a value for the model, such as an image or a list of boxes.
    """

    def __init__(self, keys: str | Sequence[str]) -> None:
        self.keys = [keys] if isinstance(keys, str) else list(keys)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Build the item from tensors of the features; subclasses implement this method.

        Args:
          keys_to_tensors: key of a feature → tensor, dense or sparse.
        """
        raise NotImplementedError


class ItemHandlerCallback(ItemHandler):
    """Builds an item by calling a function that the program supplies.

    Args:
      func: function that takes a dict of key → tensor, and returns the item.
    """

    def __init__(self, keys: str | Sequence[str], func: Callable[[Mapping[str, Any]], Any]) -> None:
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the item that the function builds from the features."""
        return self._func(keys_to_tensors)


class BoundingBox(ItemHandler):
    """Builds n bounding boxes, float [n, 4], whose columns are ymin, xmin, ymax and xmax.

    Args:
      keys: the four keys without prefix, in the order of the columns; the names of the columns
        by default.
    """

    def __init__(self, keys: Sequence[str] | None = None, prefix: str = "") -> None:
        keys = ("ymin", "xmin", "ymax", "xmax") if keys is None else keys
        if len(keys) != 4:
            raise InvalidSetting(f"BoundingBox got {len(keys)} keys. Pass four keys.")
        super().__init__([f"{prefix}{key}" for key in keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the boxes, float [n, 4]."""
        columns = (_to_dense(keys_to_tensors[key]) for key in self.keys)
        return tf.transpose(tf.stack([tf.reshape(column, [-1]) for column in columns]))


class Tensor(ItemHandler):
    """Builds a dense tensor from a feature, reshaped if requested."""

    def __init__(
        self,
        tensor_key: str,
        shape_keys: str | Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        default_value: Any = 0,
    ) -> None:
        if shape_keys and shape is not None:
            raise InvalidSetting(f"The item of {tensor_key} got shape_keys and shape. Set one.")
        keys = [shape_keys] if isinstance(shape_keys, str) else list(shape_keys or ())
        super().__init__([tensor_key, *keys])
        self._tensor_key, self._shape_keys = tensor_key, keys
        self._shape, self._default_value = shape, default_value

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the feature as a dense tensor, reshaped if a shape is set."""
        tensor = keys_to_tensors[self._tensor_key]
        shape = self._shape
        if self._shape_keys:
            parts = [tf.reshape(_to_dense(keys_to_tensors[key]), [-1]) for key in self._shape_keys]
            shape = tf.cast(tf.concat(parts, 0), tf.int32)
        if shape is not None:
            reshape = tf.sparse.reshape if isinstance(tensor, tf.SparseTensor) else tf.reshape
            tensor = reshape(tensor, shape)
        return _to_dense(tensor, self._default_value)


class LookupTensor(Tensor):
    """Builds a tensor by looking up each element of a feature in a lookup table.

    Args:
      table: lookup table with the method lookup(), such as tf.lookup.StaticHashTable.
    """

    def __init__(
        self,
        tensor_key: str,
        table: Any,
        shape_keys: str | Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        default_value: Any = "",
    ) -> None:
        self._table = table
        super().__init__(tensor_key, shape_keys, shape, default_value)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the dense feature with each element replaced by its value in the table."""
        return self._table.lookup(super().tensors_to_item(keys_to_tensors))


class SparseTensor(ItemHandler):
    """Builds a sparse tensor from a feature of indices and a feature of values."""

    def __init__(
        self,
        indices_key: str | None = None,
        values_key: str | None = None,
        shape_key: str | None = None,
        shape: Sequence[int] | None = None,
        densify: bool = False,
        default_value: Any = 0,
    ) -> None:
        self._indices_key, self._values_key = indices_key or "indices", values_key or "values"
        self._shape_key, self._shape = shape_key, shape
        self._densify, self._default_value = densify, default_value
        keys = [self._indices_key, self._values_key]
        super().__init__(keys if shape_key is None else [*keys, shape_key])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the tf.SparseTensor, or a dense tensor if densify is set."""
        indices = tf.reshape(_to_dense(keys_to_tensors[self._indices_key]), [-1])
        values = tf.reshape(_to_dense(keys_to_tensors[self._values_key]), [-1])
        if self._shape_key is not None:
            shape = _to_dense(keys_to_tensors[self._shape_key])
        else:
            shape = self._shape if self._shape is not None else tf.shape(indices)
        shape = tf.cast(tf.reshape(shape, [-1]), tf.int64)
        columns = tf.unravel_index(tf.cast(indices, tf.int64), shape)
        sparse = tf.SparseTensor(tf.transpose(columns), values, shape)
        return tf.sparse.to_dense(sparse, self._default_value) if self._densify else sparse


class Image(ItemHandler):
    """Builds an image, or several images, from encoded or raw bytes.

    Args:
      format_key: key of the feature with the format's name: "raw", "jpeg", "png" or another
        format of tf.io.decode_image; "image/format" by default.
      shape: shape to which to reshape the image; None keeps the decoded shape.
      channels: number of channels to decode; 0 keeps the encoded number.
      repeated: whether the feature contains several images, which are stacked as [n, ...].
    """

    def __init__(
        self,
        image_key: str | None = None,
        format_key: str | None = None,
        shape: Sequence[int] | None = None,
        channels: int = 3,
        dtype: Any = tf.uint8,
        repeated: bool = False,
        dct_method: str = "",
    ) -> None:
        self._image_key = image_key or "image/encoded"
        self._format_key = format_key or "image/format"
        super().__init__([self._image_key, self._format_key])
        self._shape, self._channels, self._dtype = shape, channels, dtype
        self._repeated, self._dct_method = repeated, dct_method

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return an image, [height, width, channels]; if repeated, [n, height, width, channels]."""
        encoded = keys_to_tensors[self._image_key]
        image_format = keys_to_tensors[self._format_key]
        if self._repeated:
            return tf.map_fn(
                lambda image: self._decode(image, image_format), encoded, dtype=self._dtype
            )
        return self._decode(encoded, image_format)

    def _decode(self, encoded: Any, image_format: Any) -> Any:
        encoded, image_format = tf.reshape(encoded, []), tf.reshape(image_format, [])

        def decode_raw() -> Any:
            return tf.io.decode_raw(encoded, self._dtype)

        def decode_jpeg() -> Any:
            image = tf.image.decode_jpeg(encoded, self._channels, dct_method=self._dct_method)
            return tf.cast(image, self._dtype)

        def decode_other() -> Any:
            if self._dtype == tf.uint16:
                return tf.image.decode_png(encoded, self._channels, tf.uint16)
            return tf.cast(v1.image.decode_image(encoded, self._channels), self._dtype)

        def is_any_of(*names: str) -> Any:
            return tf.reduce_any(tf.equal(image_format, list(names)))

        cases = [
            (is_any_of("raw", "RAW"), decode_raw),
            (is_any_of("jpeg", "JPEG", "jpg", "JPG", ""), decode_jpeg),
        ]
        image = tf.case(cases, default=decode_other, exclusive=True)
        image.set_shape([None, None, self._channels or None] if self._shape is None else None)
        return image if self._shape is None else tf.reshape(image, self._shape)


class BackupHandler(ItemHandler):
    """Builds an item by one handler, or by a second handler if the first one's item is empty."""

    def __init__(self, handler: ItemHandler, backup: ItemHandler) -> None:
        for item_handler in (handler, backup):
            if not isinstance(item_handler, ItemHandler):
                raise InvalidSetting(f"BackupHandler got {item_handler!r}. Pass an ItemHandler.")
        self._handler, self._backup = handler, backup
        super().__init__([*handler.keys, *backup.keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the item of the handler, or of the backup if the handler's item is empty."""
        item = self._handler.tensors_to_item(keys_to_tensors)
        return tf.cond(
            tf.equal(tf.reduce_prod(tf.shape(item)), 0),
            lambda: self._backup.tensors_to_item(keys_to_tensors),
            lambda: item,
        )


class TFExampleDecoder:
    """Decodes a serialized tf.Example to items, such as an image and its label.

    Args:
      keys_to_features: key → feature specification; see tf.io.parse_single_example.
    """

    def __init__(
        self, keys_to_features: Mapping[str, Any], items_to_handlers: Mapping[str, ItemHandler]
    ) -> None:
        self._keys_to_features, self._items_to_handlers = keys_to_features, items_to_handlers

    def list_items(self) -> list[str]:
        """Return the names of the items."""
        return list(self._items_to_handlers)

    def decode(self, serialized_example: Any, items: Sequence[str] | None = None) -> list[Any]:
        """Decode a tf.Example.

        Args:
          items: names of the items to return, in order; all items by default.
        """
        example = v1.parse_single_example(serialized_example, self._keys_to_features)
        # Set the static shapes of the dense features, which parsing may leave unknown.
        for key, feature in self._keys_to_features.items():
            if isinstance(feature, tf.io.FixedLenFeature):
                example[key] = tf.reshape(example[key], feature.shape)
        handlers = [self._items_to_handlers[name] for name in items or self._items_to_handlers]
        return [
            handler.tensors_to_item({key: example[key] for key in handler.keys})
            for handler in handlers
        ]


def _to_dense(tensor: Any, default_value: Any = None) -> Any:
    if not isinstance(tensor, tf.SparseTensor):
        return tensor
    if default_value is None:
        return tf.sparse.to_dense(tensor)
    if tensor.dtype == tf.string and not isinstance(default_value, (str, bytes)):
        default_value = ""
    return tf.sparse.to_dense(tensor, default_value)


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.tfexample_decoder", __all__)
