"""``python -m bench NAME …`` runs the benchmark ``bench/NAME.py``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)


def main() -> int:
    """Hand over to one benchmark."""
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        asked = len(sys.argv) > 1 and sys.argv[1] not in ("-h", "--help")
        said = f"no benchmark {sys.argv[1]!r}; " if asked else ""
        print(f"{said}./run bench NAME [--quick] [--json FILE]; NAME is one of: {', '.join(NAMES)}")
        return 2 if asked else 0
    name = sys.argv.pop(1)
    runpy.run_module(f"bench.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
