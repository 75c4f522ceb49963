"""Sordino as one Flower ServerApp and one ClientApp: they run any experiment file.

The ServerApp is the round loop over Flower's grid. The ClientApp is thin: it carries a letter to the site's own
long-lived process, which has the data, the ledger and the loaded model, and carries the answer back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from sordino.federation.engines.flower import ACTION, letter_of, reply_of
from sordino.federation.post import Answering, Letter

SOCKET = "SORDINO_SITE_SOCKET"
"""Where the site's own process listens; the node's setting `socket` says it, too."""


def client_app(answering: Answering) -> ClientApp:
    """The app of a site.

    Args:
        answering: Whoever answers its letters.
    """
    app = ClientApp()

    @app.query(ACTION)
    def carry(message: Message, context: Context) -> Message:
        del context
        return reply_of(answering(letter_of(message)), message)

    return app


def server_app(main: Callable[[Grid], None]) -> ServerApp:
    """The app of a coordinator.

    Args:
        main: What it does with the grid.
    """
    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        del context
        main(grid)

    return app


def _to_the_site(letter: Letter) -> Letter:
    from sordino.experiment.site.wire import ask

    return ask(Path(os.environ.get(SOCKET, "trainer.sock")), letter)


def _from_the_environment(grid: Grid) -> None:
    from sordino.experiment.flower.coordinating import run_here

    run_here(grid)


client = client_app(_to_the_site)
server = server_app(_from_the_environment)
