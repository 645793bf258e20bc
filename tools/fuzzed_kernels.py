"""Common kernels of TensorFlow with open inputs, for `tools.fuzz_kernels`.

The weights and attributes of a kernel are fixed. Its other inputs are placeholders of unknown rank.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

raw = tf.raw_ops

_FILTER2 = np.ones([3, 3, 1, 2], np.float32)
_FILTER3 = np.ones([2, 2, 2, 1, 2], np.float32)
_ONES2 = np.ones([2], np.float32)
_MATRIX = np.ones([3, 4], np.float32)
_SQUARE = np.eye(3, dtype=np.float32)

# Name → a function that takes an open tensor (x) and up to four open arguments: integers (i, j),
# of which kernels take sizes, axes and indices; a second tensor (y); and strings (s).
KERNELS: Mapping[str, Callable[..., Any]] = {
    "Conv2D": lambda x: tf.nn.conv2d(x, _FILTER2, 1, "SAME"),
    "Conv2D VALID": lambda x: tf.nn.conv2d(x, _FILTER2, 2, "VALID"),
    "Conv2D fed filter": lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"),
    "Conv2D dilated": lambda x: tf.nn.conv2d(x, _FILTER2, 1, "SAME", dilations=2),
    "conv1d": lambda x: tf.nn.conv1d(x, _FILTER2[0], 1, "SAME"),
    "Conv3D": lambda x: tf.nn.conv3d(x, _FILTER3, [1] * 5, "SAME"),
    "Depthwise": lambda x: tf.nn.depthwise_conv2d(x, _FILTER2, [1] * 4, "SAME"),
    "Depthwise fed filter": lambda x, y: tf.nn.depthwise_conv2d(x, y, [1] * 4, "SAME"),
    "Conv2DBackpropInput": lambda x, i: raw.Conv2DBackpropInput(
        input_sizes=i, filter=_FILTER2, out_backprop=x, strides=[1] * 4, padding="SAME"
    ),
    "Conv3DBackpropInput": lambda x, i: raw.Conv3DBackpropInputV2(
        input_sizes=i, filter=_FILTER3, out_backprop=x, strides=[1] * 5, padding="SAME"
    ),
    "Dilation2D": lambda x: raw.Dilation2D(
        input=x, filter=_FILTER2[..., 0], strides=[1] * 4, rates=[1] * 4, padding="SAME"
    ),
    "MaxPool": lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"),
    "MaxPool VALID": lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"),
    "MaxPoolV2": lambda x, i: raw.MaxPoolV2(input=x, ksize=i, strides=i, padding="SAME"),
    "MaxPoolWithArgmax": lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME").output,
    "MaxPool3D": lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME"),
    "AvgPool": lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"),
    "AvgPool3D": lambda x: tf.nn.avg_pool3d(x, 2, 2, "SAME"),
    "FractionalMaxPool": lambda x: (
        raw.FractionalMaxPool(value=x, pooling_ratio=[1.0, 1.4, 1.4, 1.0], seed=1).output
    ),
    "MatMul": lambda x: tf.raw_ops.MatMul(a=x, b=_MATRIX),
    "MatMul two": lambda x, y: raw.MatMul(a=x, b=y),
    "BatchMatMul": lambda x, y: tf.matmul(x, y),
    "Einsum": lambda x: tf.einsum("...ij,jk->...ik", x, _MATRIX),
    "Einsum two": lambda x, y: raw.Einsum(inputs=[x, y], equation="bij,bjk->bik"),
    "BiasAdd": lambda x: tf.nn.bias_add(x, _ONES2),
    "BiasAdd NCHW": lambda x: raw.BiasAdd(value=x, bias=_ONES2, data_format="NCHW"),
    "fused conv": lambda x: tf.nn.relu(
        tf.nn.bias_add(tf.nn.conv2d(x, _FILTER2, 1, "SAME"), _ONES2)
    ),
    "fused matmul": lambda x: tf.nn.relu(
        tf.nn.bias_add(raw.MatMul(a=x, b=_MATRIX), np.ones([4], np.float32))
    ),
    "FusedBatchNorm": lambda x: (
        raw.FusedBatchNormV3(
            x=x, scale=_ONES2, offset=_ONES2, mean=_ONES2, variance=_ONES2, is_training=False
        ).y
    ),
    "FusedBatchNorm training": lambda x: (
        raw.FusedBatchNormV3(
            x=x, scale=_ONES2, offset=_ONES2, mean=[], variance=[], is_training=True
        ).y
    ),
    "LRN": lambda x: tf.nn.lrn(x),
    "Softmax": lambda x: tf.nn.softmax(x),
    "LogSoftmax": lambda x: tf.nn.log_softmax(x),
    "SoftmaxCrossEntropy": lambda x, y: (
        raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y).loss
    ),
    "SparseSoftmaxCrossEntropy": lambda x, i: (
        raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=i).loss
    ),
    "InTopK": lambda x, i: raw.InTopKV2(predictions=x, targets=i, k=2),
    "L2Loss": lambda x: tf.nn.l2_loss(x),
    "Relu": lambda x: tf.nn.relu(x),
    "Elu": lambda x: tf.nn.elu(x),
    "Add two": lambda x, y: x + y,
    "Div ints": lambda i, j: i // j,
    "Mod ints": lambda i, j: i % j,
    "Pow ints": lambda i, j: i**j,
    "LeftShift": lambda i, j: tf.bitwise.left_shift(i, j),
    "Select": lambda x, y: tf.where(x > y, x, y),
    "Where": lambda x: tf.where(x > 0),
    "Gather": lambda x, i: raw.GatherV2(params=x, indices=i, axis=0),
    "Gather fed axis": lambda x, i, j: raw.GatherV2(params=x, indices=i, axis=j),
    "Gather batched": lambda x, i: raw.GatherV2(params=x, indices=i, axis=1, batch_dims=1),
    "GatherNd": lambda x, i: raw.GatherNd(params=x, indices=i),
    "ScatterNd": lambda x, i, j: raw.ScatterNd(indices=i, updates=x, shape=j),
    "TensorScatterUpdate": lambda x, y, i: tf.tensor_scatter_nd_update(x, i, y),
    "SegmentSum": lambda x, i: raw.SegmentSum(data=x, segment_ids=i),
    "SegmentMax": lambda x, i: raw.SegmentMax(data=x, segment_ids=i),
    "SegmentMean": lambda x, i: raw.SegmentMean(data=x, segment_ids=i),
    "UnsortedSegmentSum": lambda x, i, j: raw.UnsortedSegmentSum(
        data=x, segment_ids=i, num_segments=j
    ),
    "UnsortedSegmentMax": lambda x, i, j: raw.UnsortedSegmentMax(
        data=x, segment_ids=i, num_segments=j
    ),
    "SparseSegmentSum": lambda x, i, j: raw.SparseSegmentSum(data=x, indices=i, segment_ids=j),
    "SparseSegmentMean": lambda x, i, j: raw.SparseSegmentMean(data=x, indices=i, segment_ids=j),
    "Bincount": lambda i, j: raw.DenseBincount(input=i, size=j, weights=np.ones([0], np.float32)),
    "TopK": lambda x, i: raw.TopKV2(input=x, k=i).values,
    "NthElement": lambda x, i: raw.NthElement(input=x, n=i),
    "Sort": lambda x: tf.sort(x),
    "ArgMax": lambda x, i: raw.ArgMax(input=x, dimension=i),
    "Unique": lambda x: raw.Unique(x=x).y,
    "UniqueV2": lambda x, i: raw.UniqueV2(x=x, axis=i).y,
    "SearchSorted": lambda x, y: raw.UpperBound(sorted_inputs=x, values=y),
    "Cumsum": lambda x, i: raw.Cumsum(x=x, axis=i),
    "Cumsum exclusive": lambda x, i: raw.Cumsum(x=x, axis=i, exclusive=True, reverse=True),
    "Sum": lambda x, i: raw.Sum(input=x, axis=i),
    "Mean": lambda x, i: raw.Mean(input=x, axis=i, keep_dims=True),
    "Prod": lambda x, i: raw.Prod(input=x, axis=i),
    "OneHot": lambda x, i, j: raw.OneHot(indices=i, depth=j, on_value=1.0, off_value=0.0),
    "Reshape": lambda x, i: raw.Reshape(tensor=x, shape=i),
    "Transpose": lambda x, i: raw.Transpose(x=x, perm=i),
    "ExpandDims": lambda x, i: raw.ExpandDims(input=x, axis=i),
    "Squeeze": lambda x: raw.Squeeze(input=x, axis=[0]),
    "Concat": lambda x, y, i: raw.ConcatV2(values=[x, y], axis=i),
    "Pack": lambda x, y: tf.stack([x, y], axis=1),
    "Unpack": lambda x: raw.Unpack(value=x, num=2)[0],
    "Split": lambda x, i: raw.Split(axis=i, value=x, num_split=2)[0],
    "SplitV": lambda x, i, j: raw.SplitV(value=x, size_splits=i, axis=j, num_split=2)[0],
    "Slice": lambda x, i, j: raw.Slice(input=x, begin=i, size=j),
    "StridedSlice": lambda x, i, j: raw.StridedSlice(input=x, begin=i, end=j, strides=i),
    "Tile": lambda x, i: raw.Tile(input=x, multiples=i),
    "Fill": lambda x, i: raw.Fill(dims=i, value=1.0),
    "Range": lambda i, j: raw.Range(start=i, limit=j, delta=1),
    "Range fed delta": lambda i, j: raw.Range(start=0, limit=i, delta=j),
    "LinSpace": lambda x, y, i: raw.LinSpace(start=x, stop=y, num=i),
    "BroadcastTo": lambda x, i: raw.BroadcastTo(input=x, shape=i),
    "BroadcastArgs": lambda i, j: raw.BroadcastArgs(s0=i, s1=j),
    "Pad": lambda x, i: raw.PadV2(input=x, paddings=i, constant_values=0.0),
    "MirrorPad": lambda x, i: raw.MirrorPad(input=x, paddings=i, mode="REFLECT"),
    "Reverse": lambda x, i: raw.ReverseV2(tensor=x, axis=i),
    "ReverseSequence": lambda x, i: raw.ReverseSequence(input=x, seq_lengths=i, seq_dim=1),
    "Roll": lambda x, i, j: raw.Roll(input=x, shift=i, axis=j),
    "SpaceToBatch": lambda x, i, j: raw.SpaceToBatchND(
        input=x, block_shape=tf.ensure_shape(i, [2]), paddings=j
    ),
    "BatchToSpace": lambda x, i, j: raw.BatchToSpaceND(
        input=x, block_shape=tf.ensure_shape(i, [2]), crops=j
    ),
    "SpaceToDepth": lambda x: raw.SpaceToDepth(input=x, block_size=2),
    "DepthToSpace": lambda x: raw.DepthToSpace(input=x, block_size=2),
    "MatrixDiag": lambda x, i, j: raw.MatrixDiagV3(
        diagonal=x, k=i, num_rows=j, num_cols=-1, padding_value=0.0
    ),
    "MatrixDiagPart": lambda x, i: raw.MatrixDiagPartV3(input=x, k=i, padding_value=0.0),
    "MatrixBandPart": lambda x, i, j: raw.MatrixBandPart(input=x, num_lower=i, num_upper=j),
    "MatrixSetDiag": lambda x, y, i: raw.MatrixSetDiagV3(input=x, diagonal=y, k=i),
    "MatrixInverse": lambda x: tf.linalg.inv(x),
    "MatrixSolve": lambda x: raw.MatrixSolve(matrix=_SQUARE, rhs=x),
    "TriangularSolve": lambda x, y: raw.MatrixTriangularSolve(matrix=x, rhs=y),
    "Cholesky": lambda x: tf.linalg.cholesky(x),
    "Svd": lambda x: raw.Svd(input=x).s,
    "Qr": lambda x: raw.Qr(input=x).q,
    "FFT": lambda x: raw.RFFT(input=x, fft_length=[4]),
    "InverseFFT": lambda x: tf.signal.irfft(
        tf.cast(tf.ensure_shape(x, [None, None]), tf.complex64)
    ),
    "FFT fed length": lambda x, i: raw.RFFT(input=x, fft_length=i),
    "ResizeBilinear": lambda x, i: raw.ResizeBilinear(images=x, size=i),
    "ResizeNearest": lambda x, i: raw.ResizeNearestNeighbor(images=x, size=i),
    "ResizeBicubic": lambda x, i: raw.ResizeBicubic(images=x, size=i),
    "ResizeArea": lambda x, i: raw.ResizeArea(images=x, size=i),
    "CropAndResize": lambda x, y, i, j: raw.CropAndResize(image=x, boxes=y, box_ind=i, crop_size=j),
    "ExtractGlimpse": lambda x, y, i: raw.ExtractGlimpse(input=x, size=i, offsets=y),
    "ExtractImagePatches": lambda x: tf.image.extract_patches(
        x, [1, 2, 2, 1], [1] * 4, [1] * 4, "SAME"
    ),
    "AdjustContrast": lambda x: raw.AdjustContrastv2(images=x, contrast_factor=2.0),
    "AdjustHue": lambda x: raw.AdjustHue(images=x, delta=0.1),
    "RGBToHSV": lambda x: raw.RGBToHSV(images=x),
    "NonMaxSuppression": lambda x, y, i: raw.NonMaxSuppressionV3(
        boxes=x, scores=y, max_output_size=i, iou_threshold=0.5, score_threshold=0.0
    ),
    "CombinedNonMaxSuppression": lambda x, y, i, j: (
        raw.CombinedNonMaxSuppression(
            boxes=x,
            scores=y,
            max_output_size_per_class=i,
            max_total_size=j,
            iou_threshold=0.5,
            score_threshold=0.0,
        ).nmsed_boxes
    ),
    "DrawBoundingBoxes": lambda x, y: raw.DrawBoundingBoxesV2(
        images=x, boxes=y, colors=np.ones([1, 4], np.float32)
    ),
    "SparseToDense": lambda x, i, j: raw.SparseToDense(
        sparse_indices=i, output_shape=j, sparse_values=x, default_value=0.0
    ),
    "SparseDenseMatMul": lambda x, i, j: raw.SparseTensorDenseMatMul(
        a_indices=i, a_values=x, a_shape=j, b=_MATRIX
    ),
    "SparseReduceSum": lambda x, i, j: raw.SparseReduceSum(
        input_indices=i, input_values=x, input_shape=j, reduction_axes=[0]
    ),
    "SparseReorder": lambda x, i, j: (
        raw.SparseReorder(input_indices=i, input_values=x, input_shape=j).output_values
    ),
    "SparseSlice": lambda x, i, j: (
        raw.SparseSlice(indices=i, values=x, shape=j, start=j, size=j).output_values
    ),
    "SparseFillEmptyRows": lambda x, i, j: (
        raw.SparseFillEmptyRows(indices=i, values=x, dense_shape=j, default_value=0.0).output_values
    ),
    "SparseReshape": lambda x, i, j: (
        raw.SparseReshape(input_indices=i, input_shape=j, new_shape=j).output_indices
    ),
    "SparseSoftmax": lambda x, i, j: raw.SparseSoftmax(sp_indices=i, sp_values=x, sp_shape=j),
    "SparseAdd": lambda x, i, j: (
        raw.SparseAdd(
            a_indices=i, a_values=x, a_shape=j, b_indices=i, b_values=x, b_shape=j, thresh=0.0
        ).sum_values
    ),
    "RaggedTensorToTensor": lambda x, i, j: raw.RaggedTensorToTensor(
        shape=j,
        values=x,
        default_value=0.0,
        row_partition_tensors=[i],
        row_partition_types=["ROW_SPLITS"],
    ),
    "RaggedGather": lambda x, i, j: (
        raw.RaggedGather(
            params_nested_splits=[i], params_dense_values=x, indices=j, OUTPUT_RAGGED_RANK=1
        ).output_dense_values
    ),
    "RaggedRange": lambda i, j: raw.RaggedRange(starts=i, limits=j, deltas=1).rt_dense_values,
    "DynamicPartition": lambda x, i: raw.DynamicPartition(data=x, partitions=i, num_partitions=2)[
        0
    ],
    "DynamicStitch": lambda x, i: raw.DynamicStitch(indices=[i], data=[x]),
    "CTCGreedyDecoder": lambda x, i: (
        raw.CTCGreedyDecoder(inputs=x, sequence_length=i).log_probability
    ),
    "EditDistance": lambda x, i, j: raw.EditDistance(
        hypothesis_indices=i,
        hypothesis_values=x,
        hypothesis_shape=j,
        truth_indices=i,
        truth_values=x,
        truth_shape=j,
    ),
    "RandomUniform": lambda i: raw.RandomUniform(shape=i, dtype=tf.float32, seed=1),
    "StatelessUniform": lambda i, j: raw.StatelessRandomUniform(shape=i, seed=j),
    "Multinomial": lambda x, i: raw.Multinomial(logits=x, num_samples=i),
    "RandomShuffle": lambda x: raw.RandomShuffle(value=x),
    "AsString": lambda x: tf.strings.as_string(x),
    "StringToNumber": lambda s: tf.strings.to_number(s),
    "StringSplit": lambda s: raw.StringSplitV2(input=s, sep=" ").values,
    "StringJoin": lambda s: tf.strings.join([s, "x"]),
    "ReduceJoin": lambda s, i: raw.ReduceJoin(inputs=s, reduction_indices=i),
    "Substr": lambda s, i, j: raw.Substr(input=s, pos=i, len=j),
    "RegexReplace": lambda s: tf.strings.regex_replace(s, "a", "b"),
    "StringNGrams": lambda s, i: (
        raw.StringNGrams(
            data=s,
            data_splits=i,
            separator=" ",
            ngram_widths=[2],
            left_pad="",
            right_pad="",
            pad_width=0,
            preserve_short_sequences=False,
        ).ngrams
    ),
    "UnicodeDecode": lambda s: raw.UnicodeDecode(input=s, input_encoding="UTF-8").row_splits,
    "StringHash": lambda s: tf.strings.to_hash_bucket_fast(s, 7),
    "DecodeRaw": lambda s: raw.DecodeRaw(bytes=s, out_type=tf.float32),
    "DecodePaddedRaw": lambda s, i: raw.DecodePaddedRaw(
        input_bytes=s, fixed_length=i, out_type=tf.float32
    ),
    "DecodeBase64": lambda s: tf.io.decode_base64(s),
    "DecodeJpeg": lambda s: raw.DecodeJpeg(contents=s),
    "DecodePng": lambda s: raw.DecodePng(contents=s),
    "DecodeGif": lambda s: raw.DecodeGif(contents=s),
    "DecodeBmp": lambda s: raw.DecodeBmp(contents=s),
    "DecodeWav": lambda s: raw.DecodeWav(contents=s).audio,
    "DecodeCSV": lambda s: raw.DecodeCSV(records=s, record_defaults=[[1.0], [2]])[0],
    "ParseExample": lambda s: tf.io.parse_example(s, {"a": tf.io.FixedLenFeature([2], tf.float32)})[
        "a"
    ],
    "ParseTensor": lambda s: raw.ParseTensor(serialized=s, out_type=tf.float32),
    "DeserializeSparse": lambda s: (
        raw.DeserializeSparse(serialized_sparse=s, dtype=tf.float32).sparse_values
    ),
    "AudioSpectrogram": lambda x: raw.AudioSpectrogram(input=x, window_size=4, stride=2),
    "Mfcc": lambda x, i: raw.Mfcc(spectrogram=x, sample_rate=i),
    "Quantize": lambda x: raw.QuantizeV2(input=x, min_range=0.0, max_range=1.0, T=tf.quint8).output,
    "FakeQuant": lambda x: tf.quantization.fake_quant_with_min_max_args(x),
    "QuantizeAndDequantize": lambda x, y: raw.QuantizeAndDequantizeV2(
        input=x, input_min=y, input_max=y, range_given=True
    ),
    "FakeQuantPerChannel": lambda x, y: raw.FakeQuantWithMinMaxVarsPerChannel(
        inputs=x, min=y, max=y
    ),
    "Bucketize": lambda x: raw.Bucketize(input=x, boundaries=[0.0, 1.0]),
    "HistogramFixedWidth": lambda x, y, i: raw.HistogramFixedWidth(
        values=x, value_range=y, nbins=i
    ),
    "Betainc": lambda x, y: raw.Betainc(a=x, b=y, x=y),
    "Cross": lambda x, y: raw.Cross(a=x, b=y),
    "ListDiff": lambda i, j: raw.ListDiff(x=i, y=j).out,
    "InvertPermutation": lambda i: raw.InvertPermutation(x=i),
    "UnravelIndex": lambda i, j: raw.UnravelIndex(indices=i, dims=j),
    "Population": lambda i: raw.PopulationCount(x=i),
    "Assert": lambda x: tf.debugging.check_numerics(x, "m"),
    "While": lambda x, i: tf.while_loop(
        lambda n, z: tf.abs(n - 3) < 5, lambda n, z: (n + 1, z + 1), [i, x]
    )[1],
    "TensorList": lambda x, i: raw.TensorListStack(
        input_handle=raw.TensorListFromTensor(tensor=x, element_shape=-1),
        element_shape=i,
        element_dtype=tf.float32,
    ),
    "TensorListGather": lambda x, i, j: raw.TensorListGather(
        input_handle=raw.TensorListFromTensor(tensor=x, element_shape=-1),
        indices=i,
        element_shape=j,
        element_dtype=tf.float32,
    ),
    "TensorListSplit": lambda x, i: raw.TensorListLength(
        input_handle=raw.TensorListSplit(tensor=x, element_shape=-1, lengths=i)
    ),
}
"""Name → builds the output of a kernel from open tensors, which it takes by their names.

`x` and `y` are numbers, `i` and `j` integers, which kernels take for sizes, axes and indices, and
`s` are strings.
"""
