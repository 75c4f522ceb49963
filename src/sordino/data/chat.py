"""Conversations as a model has learnt to read them: its own template, and where in it the assistant speaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from sordino.core.errors import ConfigError
from sordino.data.texts import Message

Range: TypeAlias = tuple[int, int]
"""First character, and the one after the last."""

EXTRA = "pip install 'sordino[lm]'"


@dataclass(frozen=True)
class Chat:
    """A base model's chat template.

    Args:
        template: Compiled by Jinja.
        specials: Texts of the special tokens by what they are for, e.g. `eos_token`.
        ends: Texts of all special tokens, one of which may end a turn.
        where: The base in messages.
    """

    template: Any
    specials: dict[str, str]
    ends: tuple[str, ...]
    where: str

    def text(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        """The conversation in one text.

        Args:
            messages: The turns, in order.
            prompt: Go on with what comes before an answer of the assistant.

        Raises:
            ConfigError: The template refuses the conversation.
        """
        turns = [{"role": message.role, "content": message.content} for message in messages]
        # tools and documents are what transformers passes too: templates ask whether they are none.
        values = {"messages": turns, "tools": None, "documents": None, "add_generation_prompt": prompt}
        try:
            return str(self.template.render(**self.specials, **values))
        except _problems() as problem:
            _refuse(self.where, problem)

    def turns(self, messages: Sequence[Message]) -> tuple[str, list[Range]]:
        """The conversation in one text, and where in it the assistant speaks, each with its end-of-turn token.

        A turn begins where the template, shown only what came before, asks for an answer, and ends where the
        conversation up to it does; white space after the end-of-turn token is the template's and not the assistant's.

        Raises:
            ConfigError: The template refuses the conversation, or renders its beginning in another way than the
                whole, so that nobody can say which words are the assistant's.
        """
        whole = self.text(messages)
        ranges = []
        for i, message in enumerate(messages):
            if message.role == "assistant":
                before, after = self.text(messages[:i], prompt=True), self.text(messages[: i + 1])
                if not (whole.startswith(after) and after.startswith(before)):
                    rule = f"its chat template does not keep message {i} as it is, so its words cannot be told apart"
                    raise ConfigError.about(self.where, rule, "begin with the user, and let one answer end each record")
                ranges.append((len(before), len(self._trimmed(after))))
        return whole, ranges

    def _trimmed(self, text: str) -> str:
        bare = text.rstrip()
        return bare if bare.endswith(self.ends) else text


def chat(folder: Path, specials: dict[str, str], ends: Sequence[str]) -> Chat:
    """The chat template of a base model's folder.

    Args:
        folder: Holds chat_template.jinja, or tokenizer_config.json with the key `chat_template`.
        specials: Texts of the special tokens by what they are for.
        ends: Texts of all special tokens.

    Raises:
        ConfigError: The base has no chat template, it is broken, or jinja2 is missing.
    """
    where = f"base {folder.name}"
    file = folder / "chat_template.jinja"
    template: Any = file.read_text("utf-8") if file.is_file() else _configured(folder)
    if isinstance(template, list):  # the older form, several templates by name
        template = {str(one.get("name")): one.get("template") for one in template}.get("default")
    if not isinstance(template, str):
        raise ConfigError.about(where, "has no chat template", "take an instruction-tuned base, or plain texts")
    environment = _environment()
    try:
        return Chat(environment.from_string(template), specials, tuple(ends), where)
    except _problems() as problem:
        _refuse(where, problem)


def _configured(folder: Path) -> Any:
    file = folder / "tokenizer_config.json"
    return json.loads(file.read_text("utf-8")).get("chat_template") if file.is_file() else None


def _problems() -> tuple[type[Exception], ...]:
    """What a template can raise while it is compiled or rendered."""
    from jinja2 import TemplateError

    return TemplateError, TypeError, ValueError, OverflowError


def _refuse(where: str, problem: Exception) -> NoReturn:
    first = (str(problem).splitlines() or ["no message"])[0]
    remedy = "change the conversations, or take a base whose template allows them"
    raise ConfigError.about(where, f"its chat template says: {first}", remedy) from None


def _environment() -> Any:
    """Jinja's sandbox, set up as transformers does.

    Without `strftime_now`, on purpose: a record's tokens must not depend on the day.
    """
    try:
        from jinja2 import TemplateError
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ConfigError.about("tokenise", "conversations need jinja2", EXTRA) from None

    class Generation(Extension):
        """Renders the body of `{% generation %}`, which marks the assistant's words for other programs."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def tojson(value: object, *, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment
