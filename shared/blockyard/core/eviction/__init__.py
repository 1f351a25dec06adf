"""Eviction policies: which inactive block goes first."""
