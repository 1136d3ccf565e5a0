"""The main job on this machine: a cluster, the operator, one model, one answer."""
