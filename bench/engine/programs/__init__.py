"""Programs that run in the engine's environment."""
