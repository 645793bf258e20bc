"""Models as others write them: each gets a TPU metagraph, and the results stand in docs/zoo.md."""
