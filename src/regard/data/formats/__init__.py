"""Readers of parallel text: TSV, CSV, JSON lines, TMX, PO and MO, streamed and optionally gzipped."""

from regard.data.formats.lines import read_lines
from regard.data.formats.pairs import FORMATS, ON_EMPTY, read_pairs, read_parallel

__all__ = ["FORMATS", "ON_EMPTY", "read_lines", "read_pairs", "read_parallel"]
