"""Framed request, reply and push over unix sockets of one node; imports with msgspec alone."""
