"""Rules about names: flags, environment and images of the pinned engine version."""
