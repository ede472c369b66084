"""Interoperability with other libraries: import and export GPT-2."""
