"""A module of a program, beside its script."""

import tensorflow as tf
