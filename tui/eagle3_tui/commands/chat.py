"""`chat`: one prompt to a served endpoint, answered as it is said, with what it took."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from eagle3_backend.findings import FindingError
from eagle3_tui.commands.campaign import (
    JsonOption,
    NoInputOption,
    ProfileOption,
    SettingsOption,
    SmokeOption,
    choose,
    opened,
)
from eagle3_tui.commands.output import INTERRUPTED, Output, clean, command, exit_code
from eagle3_tui.commands.running import EndpointOption, KeyOption, ModelOption, reached
from eagle3_tui.commands.serving import RunOption

if TYPE_CHECKING:
    from eagle3_backend.control.running import Chat
    from eagle3_tui.commands.campaign import Choice


def chat(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What is asked; - reads standard input.")],
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="A system prompt before it.")] = "",
    tokens: Annotated[int, typer.Option("--max-tokens", min=1, metavar="N", help="Tokens of the answer.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, metavar="T", help="0 is greedy.")] = 0.0,
    run_name: RunOption = "",
    endpoint: EndpointOption = None,
    key_env: KeyOption = "",
    model: ModelOption = "",
    profile: ProfileOption = None,
    settings: SettingsOption = None,
    smoke: SmokeOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask the running endpoint something; ctrl-c cancels the answer. With --endpoint any OpenAI-compatible one."""
    choice = choose(context, profile, settings, no_input)
    with command(as_json, choice.options, smoke) as output:
        text = sys.stdin.read() if prompt == "-" else prompt
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        if endpoint:
            with reached(choice, output, endpoint, key_env, model) as server:
                _converse(server.conversation(), messages, tokens, temperature, output)
        else:
            with _own(choice, output, run_name, smoke) as own:
                _converse(own, messages, tokens, temperature, output)


@contextmanager
def _own(choice: Choice, output: Output, run: str, smoke: bool) -> Iterator[Chat]:
    """The endpoint of the campaign, through its tunnel."""
    from eagle3_backend.control.commands import Endpoint
    from eagle3_backend.control.running import Chat

    with opened(choice, output, smoke=smoke) as control:
        answer = control.submit(Endpoint(run)).result()
        yield Chat(str(answer["base_url"]), str(answer["api_key"] or ""), str(answer["model"]))


def _converse(chat: Chat, messages: list[dict[str, str]], tokens: int, temperature: float, output: Output) -> None:
    """Print the answer as it comes, then what it took."""
    said: list[str] = []
    try:
        for piece in chat.say(messages, tokens, temperature):
            said.append(piece)
            if not output.as_json:
                print(_shown(piece), end="", flush=True)
    except KeyboardInterrupt:
        chat.cancel()
        if not output.as_json:
            print(flush=True)
        output.say("cancelled")
        raise typer.Exit(INTERRUPTED) from None
    except FindingError as problem:
        if not output.as_json:
            print(flush=True)
            raise
        output.findings(problem.findings)
        findings = [finding.to_json() for finding in problem.findings]
        output.give({"text": "".join(said), "findings": findings}, "")
        raise typer.Exit(exit_code(problem.findings)) from None
    if not output.as_json:
        print(flush=True)
    assert chat.figures is not None
    from eagle3_tui.chatwords import figures_words

    figures = asdict(chat.figures)
    output.say(figures_words(figures))
    if output.as_json:
        output.give({"text": "".join(said), **figures}, "")


def _shown(piece: str) -> str:
    """A piece with its line ends, and without anything that could move a cursor."""
    return "\n".join(clean(line) for line in piece.split("\n"))
