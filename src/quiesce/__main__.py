"""`python -m quiesce` is the command `quiesce`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
