"""The inputs that both metagraphs are run on."""
