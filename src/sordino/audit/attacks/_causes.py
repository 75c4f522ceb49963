"""What is likely wrong when a training remembers more of a record than was promised."""

TRAINING = (
    "noise is missing, too small, or drawn once and used again",
    "the gradient of a record is not clipped, or a batch is clipped as a whole",
    "records are sampled more often, or trained for more steps, than was charged",
)
