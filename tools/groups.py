"""Prints the requirements of some dependency groups of pyproject.toml, one word each, for installers that cannot."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
for group in sys.argv[1:]:
    for requirement in project["dependency-groups"][group]:
        # Markers need spaces, and the shell would split them. Those in use exclude Windows and old Pythons.
        name, _, marker = requirement.partition(";")
        if "python_version >= '3.12'" not in marker or sys.version_info >= (3, 12):
            print(name.strip())
