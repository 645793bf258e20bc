"""The graph representation that rules and passes work on."""
