"""The commands `unilab train` and `unilab eval`."""
