"""The pagefleet operator: from an InferenceDeployment to a planned, running, autoscaled fleet."""
