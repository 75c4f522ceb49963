"""Is what runs what was accounted? A training step or an aggregation is driven as a black box and tested."""
