"""Time the training of language models against plain PyTorch and Transformers."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "training", *sys.argv[1:]]))
