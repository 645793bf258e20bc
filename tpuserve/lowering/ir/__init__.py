"""The intermediate representation of graphs on which the lowering of TPU ops works."""
