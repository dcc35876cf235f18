"""The data plane: an OpenAI-compatible front that pairs prefill and decode engines by the routing file."""
