"""The settings of a server, and the flags that set them."""
