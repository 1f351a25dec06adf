"""Recorded loads and what a policy of eviction makes of them: deterministic, no figure here depends on the machine."""
