"""The commands that managers add to `unilab`."""
