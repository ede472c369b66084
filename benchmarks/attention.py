"""Time every score function of regard against plain PyTorch: `make bench`."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "attention", *sys.argv[1:]]))
