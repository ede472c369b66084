"""From a forward pass to an `AttentionMap`, which every view draws; no task is known here."""
