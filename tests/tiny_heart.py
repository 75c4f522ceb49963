"""The smallest experiment on the four hospitals."""

HEART = """
name = "tiny"
seed = 1
rounds = 3
[data.heart]
[model.logistic]
[privacy]
unit = "record"
noise_at = "silo"
epsilon = 2.0
delta = 1e-5
silos_per_person = 1
[local]
clip = 0.3
noise_walk = 0.9
[sampling.all]
[strategy.fedavg]
"""
