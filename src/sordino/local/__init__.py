"""What one silo runs: models, clipped per-example gradients, private and plain training, evaluation."""
