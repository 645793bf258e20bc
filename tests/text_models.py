"""Exports models with ops of tensorflow_text, and a library with an op of its own."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "great", "##est", "bad", "film")
LENGTH = 8
"""The number of tokens of a row of the classifier."""


def save_bert_like(directory: Path) -> Path:
    """Export a classifier that splits its texts into WordPieces, and returns their numbers too."""
    import tensorflow_text

    class Classifier(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            vocabulary = directory.with_name("words.txt")
            vocabulary.write_text("\n".join(WORDS) + "\n")
            self.tokenizer = tensorflow_text.BertTokenizer(str(vocabulary), lower_case=True)
            self.table = tf.Variable(tf.random.stateless_normal([len(WORDS), 4], [1, 2]))
            self.kernel = tf.Variable(tf.random.stateless_normal([4, 2], [3, 4]))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def classify(self, text: Any) -> dict[str, Any]:
            tokens = self.tokenizer.tokenize(text).merge_dims(-2, -1)
            tokens = tf.cast(tokens.to_tensor(shape=[None, LENGTH]), tf.int32)
            features = tf.reduce_mean(tf.gather(self.table, tokens), axis=1)
            return {"tokens": tokens, "scores": tf.nn.softmax(features @ self.kernel)}

    model = Classifier()
    tf.saved_model.save(model, str(directory), model.classify)
    return directory


def save_fast_bert_like(directory: Path) -> Path:
    """Export a model that splits its texts by a table in a tensor, of a FastBertTokenizer."""
    import tensorflow_text

    class Tokens(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokenizer = tensorflow_text.FastBertTokenizer(
                list(WORDS), lower_case_nfd_strip_accents=True
            )

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def split(self, text: Any) -> dict[str, Any]:
            return {"tokens": self.tokenizer.tokenize(text).to_tensor()}

    model = Tokens()
    tf.saved_model.save(model, str(directory), model.split)
    return directory


def save_sentencepiece(directory: Path) -> Path:
    """Export a model that returns the SentencePieces of its texts, padded with -1."""
    import tensorflow_text

    class Pieces(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokenizer = tensorflow_text.SentencepieceTokenizer(sentencepiece_model())

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def split(self, text: Any) -> dict[str, Any]:
            return {"pieces": self.tokenizer.tokenize(text).to_tensor(default_value=-1)}

    model = Pieces()
    tf.saved_model.save(model, str(directory), model.split)
    return directory


def sentencepiece_model() -> bytes:
    """Return a ModelProto of sentencepiece with three control pieces and four others.

    Source of the numbers of the fields: sentencepiece's sentencepiece_model.proto.
    """
    unknown, control, normal = 2, 3, 1
    pieces = [("<unk>", unknown), ("<s>", control), ("</s>", control)]
    pieces += [(piece, normal) for piece in ("▁a", "▁film", "gre", "at")]
    content = b""
    for number, (piece, kind) in enumerate(pieces):
        score = b"\x15" + struct.pack("<f", -number)
        content += _field(1, _field(1, piece.encode()) + score + bytes([0x18, kind]))
    return content


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


_SOURCE = """
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"

static void Triple(void*, TF_OpKernelContext* context) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* x = nullptr;
  TF_GetInput(context, 0, &x, status);
  int64_t rows = TF_TensorElementCount(x);
  TF_Tensor* y = TF_AllocateOutput(context, 0, TF_FLOAT, &rows, 1, 4 * rows, status);
  for (int64_t i = 0; i < rows; ++i)
    static_cast<float*>(TF_TensorData(y))[i] = 3 * static_cast<float*>(TF_TensorData(x))[i];
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteStatus(status);
}

static bool Register() {
  TF_Status* status = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("TpuserveTestTriple");
  TF_OpDefinitionBuilderAddInput(op, "x: float");
  TF_OpDefinitionBuilderAddOutput(op, "y: float");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, &TF_ShapeInferenceContextSetUnknownShape);
  TF_RegisterOpDefinition(op, status);
  auto* kernel = TF_NewKernelBuilder("TpuserveTestTriple", "CPU", nullptr, &Triple, nullptr);
  TF_RegisterKernelBuilder("TpuserveTestTriple", kernel, status);
  TF_DeleteStatus(status);
  return true;
}

static bool is_registered = Register();
"""


def build_library(directory: Path, source: str = _SOURCE) -> Path:
    """Build the library of the op TpuserveTestTriple; skip the test if there is no compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    path, library = directory / "triple.cc", directory / "libtriple.so"
    path.write_text(source)
    command = [compiler, "-w", "-shared", "-fPIC", "-O0", str(path), "-o", str(library)]
    command += [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    subprocess.run(command, check=True)
    return library


def save_triple(directory: Path, op: str = "TpuserveTestTriple") -> Path:
    """Export a model with the op of `build_library`, or of another name, without the library."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        tf.compat.v1.saved_model.simple_save(session, str(directory), {"x": x}, {"y": tf.nn.elu(x)})
    rename_op(directory, "Elu", op)
    return directory


def rename_op(directory: Path, old: str, new: str) -> None:
    """Give the nodes of a SavedModel that have an op another op in its place."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = directory / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for node in saved_model.meta_graphs[0].graph_def.node:
        if node.op == old:
            node.op = new
            node.attr.clear()
    path.write_bytes(saved_model.SerializeToString())
