"""Sends the same requests to two servers, or to two versions of a model, and compares the answers.

In this package, the baseline is the server or version that is known to be right, and the candidate
is the other one.
"""
