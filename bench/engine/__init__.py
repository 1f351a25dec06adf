"""A real engine for the benchmarks: its environment, its process, a node under it, and prompts out of a trace."""
