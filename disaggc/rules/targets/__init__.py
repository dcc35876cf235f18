"""Rules about what a target needs from the spec."""
