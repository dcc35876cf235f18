"""systemd: one unit per engine process and per proxy, laid out per host. Places on named hosts only; starts nothing."""
