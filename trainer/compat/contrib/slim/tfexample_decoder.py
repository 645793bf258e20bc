"""tf.contrib.slim.tfexample_decoder: tensors made of the features of one tf.Example."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib_names import missing_names

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
    """Makes one item of some features.

    Attributes:
      keys: of the features.
    """

    def __init__(self, keys: str | Sequence[str]) -> None:
        """Takes the key of a feature, or several."""
        self.keys = [keys] if isinstance(keys, str) else list(keys)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The item.

        Args:
          keys_to_tensors: key of a feature → tensor, dense or sparse.
        """
        raise NotImplementedError


class ItemHandlerCallback(ItemHandler):
    """Makes an item by a function."""

    def __init__(self, keys: str | Sequence[str], func: Callable[[Mapping[str, Any]], Any]) -> None:
        """Takes keys, and a function of what `tensors_to_item` gets."""
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """What the function gives."""
        return self._func(keys_to_tensors)


class BoundingBox(ItemHandler):
    """[n, 4] boxes: ymin, xmin, ymax and xmax of each."""

    def __init__(self, keys: Sequence[str] | None = None, prefix: str = "") -> None:
        """Takes the four keys without their prefix, in the order of the columns."""
        keys = ("ymin", "xmin", "ymax", "xmax") if keys is None else keys
        if len(keys) != 4:
            raise InvalidSetting(f"BoundingBox has {len(keys)} keys. Give four.")
        super().__init__([f"{prefix}{each}" for each in keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The boxes."""
        sides = (_to_dense(keys_to_tensors[each]) for each in self.keys)
        return tf.transpose(tf.stack([tf.reshape(each, [-1]) for each in sides]))


class Tensor(ItemHandler):
    """A feature as it is, or in a shape."""

    def __init__(
        self,
        tensor_key: str,
        shape_keys: str | Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        default_value: Any = 0,
    ) -> None:
        """Says what shape it gets.

        Args:
          tensor_key: of the feature.
          shape_keys: of the feature that is its shape, or of those that are its dimensions.
          shape: the shape itself.
          default_value: what fills a sparse feature that gets a shape, and one that gets none.

        Raises:
          InvalidSetting: both shapes are given.
        """
        if shape_keys and shape is not None:
            raise InvalidSetting(f"the item of {tensor_key} has shape_keys and shape. Give one.")
        keys = [shape_keys] if isinstance(shape_keys, str) else list(shape_keys or ())
        super().__init__([tensor_key, *keys])
        self._tensor_key, self._shape_keys = tensor_key, keys
        self._shape, self._default_value = shape, default_value

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The tensor; a sparse one that gets no shape is made dense."""
        tensor = keys_to_tensors[self._tensor_key]
        shape = self._shape
        if self._shape_keys:
            parts = [
                tf.reshape(_to_dense(keys_to_tensors[each]), [-1]) for each in self._shape_keys
            ]
            shape = tf.cast(tf.concat(parts, 0), tf.int32)
        if shape is not None:
            reshape = tf.sparse.reshape if isinstance(tensor, tf.SparseTensor) else tf.reshape
            tensor = reshape(tensor, shape)
        return _to_dense(tensor, self._default_value)


class LookupTensor(Tensor):
    """A feature's place in a table."""

    def __init__(
        self,
        tensor_key: str,
        table: Any,
        shape_keys: str | Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        default_value: Any = "",
    ) -> None:
        """Takes the table, and what `Tensor` takes."""
        self._table = table
        super().__init__(tensor_key, shape_keys, shape, default_value)

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """What the table has for it."""
        return self._table.lookup(super().tensors_to_item(keys_to_tensors))


class SparseTensor(ItemHandler):
    """Features that are places and values, as one sparse tensor."""

    def __init__(
        self,
        indices_key: str | None = None,
        values_key: str | None = None,
        shape_key: str | None = None,
        shape: Sequence[int] | None = None,
        densify: bool = False,
        default_value: Any = 0,
    ) -> None:
        """Says where it comes from.

        Args:
          indices_key: of the places, [n]; "indices" by default.
          values_key: of the values, [n]; "values" by default.
          shape_key: of the feature that is the shape.
          shape: the shape itself.
          densify: whether the item is a dense tensor, filled with default_value.
          default_value: see densify.
        """
        self._indices_key, self._values_key = indices_key or "indices", values_key or "values"
        self._shape_key, self._shape = shape_key, shape
        self._densify, self._default_value = densify, default_value
        keys = [self._indices_key, self._values_key]
        super().__init__(keys if shape_key is None else [*keys, shape_key])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The sparse tensor, or the dense one."""
        indices = tf.reshape(_to_dense(keys_to_tensors[self._indices_key]), [-1])
        values = tf.reshape(_to_dense(keys_to_tensors[self._values_key]), [-1])
        if self._shape_key is not None:
            shape = _to_dense(keys_to_tensors[self._shape_key])
        else:
            shape = self._shape if self._shape is not None else tf.shape(indices)
        shape = tf.cast(tf.reshape(shape, [-1]), tf.int64)
        columns = tf.unravel_index(tf.cast(indices, tf.int64), shape)
        found = tf.SparseTensor(tf.transpose(columns), values, shape)
        return tf.sparse.to_dense(found, self._default_value) if self._densify else found


class Image(ItemHandler):
    """An encoded or raw image, or several."""

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
        """Says how it is encoded.

        Args:
          image_key: of the bytes; "image/encoded" by default.
          format_key: of their format, "raw" or that of a picture file; "image/format" by default.
          shape: of the image; None for what is found.
          channels: of a picture file; 0 for its own.
          dtype: of the image; of a picture file tf.uint8 or tf.uint16.
          repeated: whether the feature holds several images, which come as [n, ...].
          dct_method: of JPEG; see tf.io.decode_jpeg.
        """
        self._image_key = image_key or "image/encoded"
        self._format_key = format_key or "image/format"
        super().__init__([self._image_key, self._format_key])
        self._shape, self._channels, self._dtype = shape, channels, dtype
        self._repeated, self._dct_method = repeated, dct_method

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """[height, width, channels], or [n, height, width, channels]."""
        encoded, form = keys_to_tensors[self._image_key], keys_to_tensors[self._format_key]
        if self._repeated:
            return tf.map_fn(lambda each: self._decode(each, form), encoded, dtype=self._dtype)
        return self._decode(encoded, form)

    def _decode(self, encoded: Any, form: Any) -> Any:
        encoded, form = tf.reshape(encoded, []), tf.reshape(form, [])

        def raw() -> Any:
            return tf.io.decode_raw(encoded, self._dtype)

        def jpeg() -> Any:
            found = tf.image.decode_jpeg(encoded, self._channels, dct_method=self._dct_method)
            return tf.cast(found, self._dtype)

        def other() -> Any:
            if self._dtype == tf.uint16:
                return tf.image.decode_png(encoded, self._channels, tf.uint16)
            return tf.cast(v1.image.decode_image(encoded, self._channels), self._dtype)

        forms = {"raw": ("raw", "RAW"), "jpeg": ("jpeg", "JPEG", "jpg", "JPG", "")}
        chosen = {name: tf.reduce_any(tf.equal(form, list(texts))) for name, texts in forms.items()}
        image = tf.case(
            [(chosen["raw"], raw), (chosen["jpeg"], jpeg)], default=other, exclusive=True
        )
        image.set_shape([None, None, self._channels or None] if self._shape is None else None)
        return image if self._shape is None else tf.reshape(image, self._shape)


class BackupHandler(ItemHandler):
    """A handler, and another for Examples that have nothing for the first."""

    def __init__(self, handler: ItemHandler, backup: ItemHandler) -> None:
        """Takes both."""
        for each in (handler, backup):
            if not isinstance(each, ItemHandler):
                raise InvalidSetting(f"BackupHandler got {each!r}. Give an ItemHandler.")
        self._handler, self._backup = handler, backup
        super().__init__([*handler.keys, *backup.keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """The first's item, unless it is empty."""
        item = self._handler.tensors_to_item(keys_to_tensors)
        return tf.cond(
            tf.equal(tf.reduce_prod(tf.shape(item)), 0),
            lambda: self._backup.tensors_to_item(keys_to_tensors),
            lambda: item,
        )


class TFExampleDecoder:
    """Makes items of a serialized tf.Example."""

    def __init__(
        self, keys_to_features: Mapping[str, Any], items_to_handlers: Mapping[str, ItemHandler]
    ) -> None:
        """Takes how features are parsed, see tf.io.parse_single_example, and name → handler."""
        self._keys_to_features, self._items_to_handlers = keys_to_features, items_to_handlers

    def list_items(self) -> list[str]:
        """The names of the items."""
        return list(self._items_to_handlers)

    def decode(self, serialized_example: Any, items: Sequence[str] | None = None) -> list[Any]:
        """The items.

        Args:
          serialized_example: a scalar string.
          items: which, and in what order; all by default.
        """
        example = v1.parse_single_example(serialized_example, self._keys_to_features)
        # Parsing may leave the shape of a dense feature open.
        for key, feature in self._keys_to_features.items():
            if isinstance(feature, tf.io.FixedLenFeature):
                example[key] = tf.reshape(example[key], feature.shape)
        handlers = [self._items_to_handlers[each] for each in items or self._items_to_handlers]
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


__getattr__ = missing_names.getattr_for("tf.contrib.slim.tfexample_decoder", __all__)
