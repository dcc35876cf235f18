"""Kubernetes: a StatefulSet or LeaderWorkerSet per engine, a proxy Deployment, and the objects around them."""
