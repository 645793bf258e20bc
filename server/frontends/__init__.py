"""The frontends of the server, one for each protocol, and the functions that start them."""
