"""A module beside terms: where they should remember nothing."""

SCALE = 1.0
count = 0
seen = {"often": 0}
