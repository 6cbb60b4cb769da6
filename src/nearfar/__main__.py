"""``python -m nearfar`` is the command ``nearfar``."""

import sys

from nearfar.cli import main

sys.exit(main())
