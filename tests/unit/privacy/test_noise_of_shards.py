"""Each shard of a sharded sum is a release of its own: it carries the whole noise, whatever the other shards do."""

from __future__ import annotations

import numpy as np
from tiny_door import reserved

from sordino.core.types import Unit
from sordino.federation.mechanisms.skellam import Skellam
from sordino.federation.secure.encoding import Crowd, Encoding
from sordino.federation.secure.sharded import Sharded
from sordino.privacy.kernel import Private
from sordino.privacy.noise import SeededNoise
from sordino.privacy.shares import ShareDoor

Z, SIZE, COLLUDING = 2.0, 2048, 2
OF = Sharded("round 1", tuple(range(48)), shards=4, minimum=0.75, bits=20, size=SIZE)


def released(honest):
    """A shard's noise at worst, over the clip: the fewest survivors, of which some told theirs. Mean square."""
    part = OF.parts[0]
    code = Encoding.fitting(OF.bits, 1.0, SIZE, Crowd(len(part.members), honest), noise_multiplier=Z).at(part.txid)
    law = Skellam(Z, *code.bound())
    silent = [str(member) for member in part.members[: part.threshold - COLLUDING]]
    door = ShareDoor(law, code, honest, law.event(), ("a",), reserved(law.event(), unit=Unit.CLIENT), SeededNoise(1))
    zero, total = Private(np.zeros((1, SIZE)), Unit.CLIENT), np.zeros(code.length, np.uint64)
    for part in door.parts(silent).values():
        total += part(zero.clip(l2=1.0)).masked(lambda words: words)
    return float(np.mean(np.square(code.decode(total))))


def test_a_shard_at_its_worst_has_the_noise_that_is_charged():
    """Sized for the honest of one shard: the charged variance, to five standard errors."""
    assert OF.honest(COLLUDING) == 7
    assert released(OF.honest(COLLUDING)) > Z**2 * (1 - 5 * (2 / SIZE) ** 0.5)


def test_noise_sized_for_the_total_leaves_a_shard_with_too_little():
    """Negative control: in shares of all that may remain in any shard, one shard's sum has a quarter of it."""
    everybody = sum(part.threshold for part in OF.parts) - COLLUDING
    assert released(everybody) < Z**2 / 3
