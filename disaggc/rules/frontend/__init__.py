"""Rules about the proxy, keys and the watcher."""
