"""Prints the requirements of some dependency groups of pyproject.toml, one word each, for installers that cannot."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
for group in sys.argv[1:]:
    for requirement in project["dependency-groups"][group]:
        # Markers need spaces; the shell would split them. The one in use only excludes Windows.
        print(requirement.split(";")[0].strip())
