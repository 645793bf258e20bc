"""The sample model, which comes with the package."""
