"""Interoperability with other libraries: import and export GPT-2, watch models of Transformers."""
