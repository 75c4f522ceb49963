"""How long to sleep between two questions, where nobody tells when the answer is there.

Each question costs about ten milliseconds of CPU on each end, so whoever has waited long asks seldom. What is waited
for is seen late by a tenth of the wait at most, and never by more than the longest sleep.
"""

from __future__ import annotations


def pause(waited: float, least: float, most: float) -> float:
    """The next sleep of one who has waited so long, in seconds.

    >>> [round(pause(waited, 0.05, 0.5), 2) for waited in (0.0, 1.0, 60.0)]
    [0.05, 0.1, 0.5]
    """
    return min(max(least, 0.1 * waited), most)
