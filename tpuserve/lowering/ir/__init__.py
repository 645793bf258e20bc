"""The graph representation that the rules and passes transform."""
