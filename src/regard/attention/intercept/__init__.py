"""Record the attention that a model computes itself: one file per torch function that is intercepted."""
