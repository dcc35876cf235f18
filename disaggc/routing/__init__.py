"""Pure choice of replicas: the routing file, load, policies, cohorts, break-even, circuits, admission."""
