"""Classifies the names that a program uses: whether they still exist, and who supplies them."""
