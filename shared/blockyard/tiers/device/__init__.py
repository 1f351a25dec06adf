"""Devices that hold KV memory: streams, events and copies behind one port, and the fences that order them."""
