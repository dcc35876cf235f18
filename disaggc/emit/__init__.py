"""Stage 7: a DeploymentPlan becomes the files of one target. Decides nothing the plan left open; writes no file."""
