"""Physics backends: one folder each, found through the entry-point group `unisim.backends`."""
