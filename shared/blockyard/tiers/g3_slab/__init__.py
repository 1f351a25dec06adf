"""G3: blocks in preallocated slab files on a local disk."""
