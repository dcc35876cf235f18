"""Stage 5: which replicas, in which shape, on which nodes. Reads perf, knows no target and no text of one."""
