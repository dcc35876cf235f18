"""Rules about load and objectives."""
