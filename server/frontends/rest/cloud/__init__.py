"""The paths that cloud services prescribe: those of Vertex AI and SageMaker."""
