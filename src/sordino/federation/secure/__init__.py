"""Secure summation: a server learns the sum of many vectors and nothing else about them. Pure state machines.

    client u                            server
    two fresh public keys, signed   →   passes them on to u's neighbours
    shares of two secrets, sealed   →   passes them on, cannot open them
    vector + own mask ± pair masks, →   adds up: pair masks cancel where both sides are there
      and a signature under "all"
    signs the list of survivors,    →   passes the signatures on
      if somebody is missing
    one share per neighbour         →   own masks of survivors, pair masks of the lost come off: the sum

Terms are public and announced; Client and Server take messages and return messages; `played` runs a whole sum in one
process. There is no transport here, no clock and no file. Transport must tell the server who speaks (TLS, node keys).
`sharded` makes many small sums of a large one, each with noise of its own.

Who learns what, with n members, threshold t and k of them colluding with the server:

- A server that follows the protocol: the sum of at least t vectors, the list of who is in it, and nothing more, for
  k < t. The colluders can subtract their own vectors: what is hidden is the sum of at least t - k others.
- A server that does anything it likes, all pairs masking: the same, for k ≤ 2 t - n - 1, that is 2 t > n + k. With its
  vector each honest client signs the list of those it is masked with; if it is told that somebody is missing, it signs
  one shorter list. Under one of the two it reveals, once, and needs t signatures of that kind. Two lists of one kind
  would need 2 t signatures from n + k, so at most one of each kind gets them. Under the full list only seeds are
  revealed, under the shorter one also keys of those that are not in it. Both secrets of a client would take t holders
  for either, again 2 t of n + k: they are never both known. Keys are signed, so the server cannot play members itself.
  It can spoil the sum or stop it, and so can any client.
- Members on a circle (`Terms.degree`): the first line, except with the probability that `graph.leak` bounds, if neither
  colluders nor drop-outs were chosen knowing the circle. A server that does anything it likes can choose drop-outs
  around one member and learn its vector: only masking in all pairs resists it.
- The sum itself is not private. Each client adds its share of noise before it masks, sized for t - k honest shares.
- One txid, one sum. A client that takes part twice with the same vector gives two sums, and their difference. Whoever
  makes a Client therefore does so once per charged release.
- A client may send any numbers; nothing proves that they are clipped.

Source:
    Bonawitz et al. (2017), eprint 2017/281, for the protocol with double masks and the round of consistency; Bell et
    al. (2020), eprint 2020/704, for neighbours on a sparse graph.
"""

from sordino.federation.secure.client import STAGES, Client
from sordino.federation.secure.framing import Message
from sordino.federation.secure.messages import Advert, Consent, Masked, Revealed, Sealed, Shares
from sordino.federation.secure.played import played
from sordino.federation.secure.server import Server
from sordino.federation.secure.terms import Terms

__all__ = [
    "STAGES",
    "Advert",
    "Client",
    "Consent",
    "Masked",
    "Message",
    "Revealed",
    "Sealed",
    "Server",
    "Shares",
    "Terms",
    "played",
]
