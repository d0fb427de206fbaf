"""``./run simulate``."""

from __future__ import annotations

import sys

from holdfast.testing.simulation.many import main

if __name__ == "__main__":
    sys.exit(main())
