"""The scripts that make docs/terms.md: they lie beside the packages, and belong to none."""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[4]
SCRIPTS = str(ROOT / "scripts")
if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)

terms, trial = map(import_module, ("_terms", "_term_trial"))
