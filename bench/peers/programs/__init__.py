"""Programs that run in the peers' environment: standard library and one peer each."""
