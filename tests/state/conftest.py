"""Makes ``tests.state.model`` importable however pytest was started, and sets Hypothesis' pace."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[2]))

settings.register_profile(
    "state", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("state")
