"""Many clients trained at once in one process: what a simulation of small models spends most of its time on.

    buckets ── clients of like size, padded ──► plain.train_plain_many      one gradient per client
                                          └──► private.train_private_many  one clipped sum per client and step

How a bucket's gradients are made is a choice of speed only: `loop` (one client after another), `mapped` (vmap over
the clients) or `twin` (each layer one batched product over clients). `choice` measures once and picks.

The ways agree up to rounding, not to the bit: libraries choose kernels by the size of the whole batch. Where not even
the last bits of a client's gradient may depend on who else trains, the loop is the way.
"""
