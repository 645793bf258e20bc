"""Encodes the requests and decodes the replies of the servers' APIs, over REST and over gRPC."""
