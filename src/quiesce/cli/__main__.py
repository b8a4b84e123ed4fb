"""`python -m quiesce.cli`, the same as `quiesce`."""

import sys

from .main import main

sys.exit(main())
