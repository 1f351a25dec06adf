"""The demo engine: an engine without a model, whose KV bytes are known in advance."""
