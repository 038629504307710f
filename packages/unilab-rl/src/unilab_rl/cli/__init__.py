"""The commands `unilab train`, `unilab eval` and `unilab play`."""
