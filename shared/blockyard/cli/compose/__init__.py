"""The proof run on a stack that docker compose, or something that is used like it, runs."""
