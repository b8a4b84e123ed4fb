"""Sphinx's settings for the manual. `make docs` builds it; tools/site/build.py makes the source folder."""

import sys
from pathlib import Path
from typing import Any, Generic, get_origin

sys.path.insert(0, str(Path(__file__).parent))
from docstrings import as_rst

from quiesce import Cause, __version__

project = "Quiesce"
copyright = "the Quiesce contributors"  # noqa: A001
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 4
# The built-in `type` in an annotation is taken for the attribute `type` that every event has.
suppress_warnings = ["ref.python"]

# A cause also accepts a source of older stores, which it replaces at once: no user sees that one.
Cause.__annotations__["source"] = "Source"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"Quiesce {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#8a3b12", "color-brand-content": "#8a3b12"},
    "dark_css_variables": {"color-brand-primary": "#f0a868", "color-brand-content": "#f0a868"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def plain_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001, PLR0917
    """Docstrings are plain text with names in single backticks."""
    lines[:] = as_rst(lines)


def public_bases(app: Any, name: str, obj: Any, options: Any, bases: list[Any]) -> None:  # noqa: ARG001
    """A base class that is not public is left out; what it is made from stands in its place."""
    while private := next((base for base in bases if _is_private(base)), None):
        place = bases.index(private)
        bases[place : place + 1] = [base for base in private.__bases__ if base is not object]
    bases[:] = [base for base in bases if get_origin(base) is not Generic and base is not Generic] or [object]


def _is_private(base: Any) -> bool:
    return isinstance(base, type) and base.__name__.startswith("_")


def setup(app: Any) -> None:
    """Connect the docstrings and the bases."""
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-process-bases", public_bases)
