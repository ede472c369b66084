"""Train several models under the same conditions and compare them in one report."""
