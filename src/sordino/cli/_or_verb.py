"""A verb that takes its argument directly beside verbs of its own: `sordino plan FILE` and `sordino plan approve`."""

from __future__ import annotations

from typing import Any

import click


class OrVerb(click.Group):
    """What is no verb of the group goes to one of them, which is hidden.

    Args:
        instead: The verb's name.
    """

    def __init__(self, *arguments: Any, instead: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.instead = instead

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            return super().resolve_command(ctx, [self.instead, *args])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Options of the hidden verb may stand first: `sordino audit --json RUN`.
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [self.instead, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The hidden verb's options are what most people look for here.
        self.commands[self.instead].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
