"""REST API of the block-manager, version 1."""
