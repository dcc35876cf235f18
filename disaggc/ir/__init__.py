"""The DeploymentPlan: what should exist, said once for every target."""
