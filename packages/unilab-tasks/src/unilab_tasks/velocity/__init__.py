"""Walking at a commanded velocity."""
