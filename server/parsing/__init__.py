"""Parses request bodies: small ones in this process, large ones in processes of their own."""
