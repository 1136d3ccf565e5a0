"""Running a plan: replicas as observed, rollout, drain, what the engines report."""
