"""Helpers for files and directories: cache directories, file locks and the files of plots."""
