"""Time what regard computes on a GPU against its peers; see `regard bench gpu --help`."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "gpu", *sys.argv[1:]]))
