"""Traffic as data: length sketches, arrival processes, the sample log."""
