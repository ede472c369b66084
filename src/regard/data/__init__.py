"""Files and built-in corpora -> Example -> Batch."""
