"""Fails when it is imported: raises, or leaves where a variable says so."""

import os

if "BROKEN_PLUGIN_LEAVES" in os.environ:
    raise SystemExit("the licence server does not answer")
raise RuntimeError("the licence server does not answer")
