"""Calibration: results of benchmark runs -> constants with ranges and provenance. Knows no solver and no target."""
