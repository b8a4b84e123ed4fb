"""All benchmarks, one after the other: `python -m bench`, or `python -m bench NAME ...`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main(names: list[str]) -> None:
    # Packages need more than this project's own environment: `make field` runs bench/field.
    modules = (module for module in pkgutil.iter_modules(bench.__path__) if not module.ispkg)
    known = [module.name for module in modules if not module.name.startswith("_")]
    for name in names or known:
        print(f"--- {name} ---", flush=True)
        importlib.import_module(f"bench.{name}").main()
        print(flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
