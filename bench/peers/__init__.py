"""Other projects' parts that do the same, each in a process of its own interpreter."""
