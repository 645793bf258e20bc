"""Programs for work on the code: figures of its structure, and samples of its prose."""
