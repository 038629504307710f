"""What configs say about each kind of term."""
