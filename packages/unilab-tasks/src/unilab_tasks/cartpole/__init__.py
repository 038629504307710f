"""Cart-pole: balance and swing-up."""
