"""`python -m regard`: the command, where it is not on the path."""

import sys

from regard.cli import main

if __name__ == "__main__":
    sys.exit(main())
