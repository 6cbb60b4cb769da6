"""How many draws: a few hundred that never change, or thousands of new ones.

NEARFAR_CAMPAIGN=nightly takes new draws each time, NEARFAR_CAMPAIGN_DRAWS of them in all (2000 by
default), and prints a line that repeats a failing one. `python dev.py campaign` sets both.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from tests.campaign.learners import LEARNERS

N_TESTS = 2 * len(LEARNERS)  # test_certificates and test_relations, for each learner
CI_DRAWS = 12  # a test
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # without explanations

settings.register_profile(
    "ci",
    max_examples=CI_DRAWS,
    derandomize=True,
    deadline=None,
    phases=PHASES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile(
    "nightly",
    max_examples=max(1, int(os.environ.get("NEARFAR_CAMPAIGN_DRAWS", "2000")) // N_TESTS),
    deadline=None,
    phases=PHASES,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

CAMPAIGN = settings.get_profile(os.environ.get("NEARFAR_CAMPAIGN", "ci"))
