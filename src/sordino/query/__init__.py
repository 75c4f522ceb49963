"""Budgeted private statistics over a silo's table: declared columns, one account, exact noise by OpenDP.

SQL ─ sql ─┐                      ┌─ declared, rows     what is public; what a unit can move
           ├─► Question ─ price ─►│
Python ────┘                      └─ noise ─► answers   charged before it is drawn; the same bytes for ever
"""

from sordino.query.answers import Answer, Figure
from sordino.query.declared import Declared, Source, read
from sordino.query.prices import Offer, Price
from sordino.query.questions import Question, Statistic
from sordino.query.session import Session

__all__ = ["Answer", "Declared", "Figure", "Offer", "Price", "Question", "Session", "Source", "Statistic", "read"]
