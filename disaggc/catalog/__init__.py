"""Facts about accelerators, fabrics, models and engine versions, each with its source."""
