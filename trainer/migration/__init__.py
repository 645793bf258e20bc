"""What an old program names, and whether it runs here: read, never run. No TensorFlow here."""
