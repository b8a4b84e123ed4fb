"""The tools of a coding agent: `coding_tools(root)`."""

from .kit import coding_tools

__all__ = ["coding_tools"]
