"""Time a look at the attention of a Hugging Face model of the size of GPT-2."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "watch", *sys.argv[1:]]))
