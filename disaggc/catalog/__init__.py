"""Facts with their source: accelerators, fabrics, models, engine versions, connectors."""
