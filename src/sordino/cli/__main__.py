"""`python -m sordino.cli`."""

from sordino.cli import main

main()
