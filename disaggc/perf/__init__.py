"""Performance model: arithmetic and queueing over resolved facts. Knows no solver, no target and no clock."""
