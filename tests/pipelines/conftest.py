from __future__ import annotations

import sys
from pathlib import Path

# `own_answers` is shared by the test files of this folder.
sys.path.insert(0, str(Path(__file__).parent))
