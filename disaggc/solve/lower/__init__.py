"""Solution to DeploymentPlan: names, ports, command lines and lifecycles; decides nothing about counts or places."""

from disaggc.solve.lower.plan import lower

__all__ = ["lower"]
