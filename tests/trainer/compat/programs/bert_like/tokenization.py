"""Turns sentences into word pieces, and word pieces into ids."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import collections
import unicodedata

import six
import tensorflow as tf


def to_text(value):
    if six.PY3:
        if isinstance(value, bytes):
            return value.decode("utf-8", "ignore")
        return value
    if isinstance(value, str):
        return value.decode("utf-8", "ignore")
    return value


def read_vocabulary(path):
    vocabulary = collections.OrderedDict()
    with tf.gfile.GFile(path, "r") as reader:
        while True:
            line = to_text(reader.readline())
            if not line:
                break
            vocabulary[line.strip()] = len(vocabulary)
    return vocabulary


class Tokenizer(object):
    """Lowers case, separates punctuation, and splits words into the longest known pieces."""

    def __init__(self, vocab_file, do_lower_case=True, unknown="[UNK]"):
        self.vocab = read_vocabulary(vocab_file)
        self.do_lower_case = do_lower_case
        self.unknown = unknown

    def tokenize(self, text):
        pieces = []
        for word in self._words(to_text(text)):
            pieces.extend(self._pieces(word))
        return pieces

    def convert_tokens_to_ids(self, tokens):
        return [self.vocab[token] for token in tokens]

    def _words(self, text):
        if self.do_lower_case:
            text = unicodedata.normalize("NFD", text.lower())
        spaced = []
        for char in text:
            category = unicodedata.category(char)
            if category == "Mn":
                continue
            spaced.append(" %s " % char if category.startswith("P") else char)
        return "".join(spaced).split()

    def _pieces(self, word):
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocab:
                    pieces.append(piece)
                    start = end
                    break
            else:
                return [self.unknown]
        return pieces
