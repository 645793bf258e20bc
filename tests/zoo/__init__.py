"""Models of other authors: each is converted and examined; docs/zoo.md has the results."""
