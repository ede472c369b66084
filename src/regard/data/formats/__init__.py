"""Parallel text in the formats people keep it in, read as a stream; each may be gzipped."""

from regard.data.formats.lines import read_lines
from regard.data.formats.pairs import EMPTY, FORMATS, read_pairs, read_parallel

__all__ = ["EMPTY", "FORMATS", "read_lines", "read_pairs", "read_parallel"]
