"""The transfer of data between host and cores: infeed, outfeed, and the threads that drive them."""
