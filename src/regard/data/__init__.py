"""Read files and generate built-in corpora, and build batches from them."""
