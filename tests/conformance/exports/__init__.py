"""Every kind of export x every promise: what docs/conformance.md says, found by running it."""
