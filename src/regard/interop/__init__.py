"""Other libraries: reading what they have written, and writing what they can read."""
