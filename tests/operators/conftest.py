"""Makes ``tests.operators.folding`` importable however pytest was started, and sets the pace."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[2]))

settings.register_profile(
    "operators", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("operators")
