"""Seeded simulations: virtual time, processes that stand still or die at any step, ports that lose and reorder."""
