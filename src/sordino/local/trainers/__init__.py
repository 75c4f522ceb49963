"""How a silo trains: private steps, plain steps, or one gradient sum. `plans` needs no torch."""
