"""Adapters to NIXL; the SDK is used in this folder only."""
