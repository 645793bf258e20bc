"""Answers requests at the paths that the cloud services Vertex AI and SageMaker prescribe."""
