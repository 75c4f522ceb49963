"""What crosses the wire between silo and coordinator: sampling, stages, sums, doors, steps, engines."""
