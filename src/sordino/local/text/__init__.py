"""Text that must leave a site: noised embeddings, or words replaced by chance.

    embeddings.py   one vector per text from a public model, clipped and noised           (DP-Forward)
    noise.py        how much noise that takes: the exact Gaussian
    vocabulary.py   a public model's whole words and their vectors
    groups.py       that vocabulary in groups, and the exponential mechanism inside one   (CusText)
    policy.py       which words are replaced, as which kind, at which epsilon
    words.py        a text with its words replaced

Each has a guarantee in words of its own. Neither is the epsilon of training.
"""
