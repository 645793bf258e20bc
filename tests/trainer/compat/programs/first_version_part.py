"""A module that first_version.py and import_line.py import from their own directory."""

import tensorflow as tf
