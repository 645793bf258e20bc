"""Loaded model versions (servables), and the loaders for SavedModels and TensorFlow Lite."""
