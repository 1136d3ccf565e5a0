"""One model over several processes: tensor and pipeline parallelism."""
