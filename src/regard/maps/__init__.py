"""Build an `AttentionMap` from a forward pass, independent of the task."""
