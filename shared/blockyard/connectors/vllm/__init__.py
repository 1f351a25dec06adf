"""Connector for vLLM: its scheduler half and its rank halves, thin over the client API.

Only ``connector``, ``metadata``, ``layout``, ``statistics``, ``memory`` and ``rank_half`` import vLLM or torch; what
decides is pure and runs without them. Threading: see the modules.
"""
