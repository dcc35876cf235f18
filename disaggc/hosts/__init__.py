"""Reaching machines: run a command, copy a file, ask a supervisor. Knows no plan and decides nothing."""
