"""What a step costs, where the time goes, and what it costs above the engine alone."""
