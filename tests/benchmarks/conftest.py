"""Scripts in `benchmarks` find each other in their own folder, and so do their tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))
