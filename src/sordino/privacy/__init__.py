"""The mathematics of the guarantee, numpy only: what was released, what it costs, and the one door it leaves by.

    kernel ── permits ── noise      the door: bound → sum → mechanism, under a charge; where noise comes from
    events                          what was released, as data
    relations ─ renyi ─ accounting  what it costs, and under which neighbouring relation
    gaussian, laplace               the two mechanisms that have exact closed forms
    calibration, forecast           the one free number of a plan; whether it can learn at all
    comparison, tradeoff            the same plan under every accountant; what an attacker can achieve at most
    silos, weights, norms           several silos: composition, public weights; bounds from bounds

An event says what happened, an accountant what it cost. Every ε here is an upper bound with its δ and adjacency;
what cannot be priced soundly raises `PrivacyError`.
"""
