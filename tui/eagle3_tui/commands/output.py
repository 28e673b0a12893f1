"""What a command says and how it ends: data on standard output, everything else on standard error, typed exit codes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from eagle3_backend.findings import Finding, FindingError, error, shown

OK, REFUSED, USAGE, UNREACHABLE, DENIED, CONFLICT, STAGE_ENDED_BADLY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

_CODES = {
    DENIED: {"ssh_host_key_unknown", "ssh_host_key_changed", "ssh_host_key_revoked", "ssh_authentication_failed"},
    UNREACHABLE: {
        "host_unknown",
        "host_unreachable",
        "host_not_answering",
        "host_shell_failed",
        "gateway_failed",
        "link_failed",
        "ssh_connection_lost",
        "ssh_negotiation_failed",
        "ssh_proxyjump_loop",
        "transport_failed",
    },
    CONFLICT: {"already_running", "run_elsewhere", "gpu_in_use", "artifact_in_use"},
}
"""Finding codes behind an exit code of their own."""


def exit_code(findings: Iterable[Finding]) -> int:
    """The exit code of an act that these findings ended: who cannot be reached, who refuses, what is taken, else 1."""
    codes = {finding.code for finding in findings}
    return next((status for status, known in _CODES.items() if codes & known), REFUSED)


def clean(text: str) -> str:
    """Text from a host with everything replaced that could move a cursor or end a line."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def describe(finding: Finding) -> str:
    """A finding on one line, and its next step on a second; what a file says at great length is cut."""
    from eagle3_tui.text import cut

    wanted = [f"expected {cut(shown(finding.expected), 300)}"] if finding.expected is not None else []
    found = [f"found {cut(shown(finding.actual), 300)}"] if finding.actual is not None else []
    facts = f" ({', '.join(wanted + found)})" if wanted or found else ""
    place = f" {cut(finding.path, 1000)}" if finding.path else ""
    line = clean(f"{finding.severity.value} {finding.code}{place}: {cut(finding.message, 2000)}{facts}")
    return f"{line}\n  next: {clean(cut(finding.fix, 1000))}" if finding.fix else line


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as hh:mm:ss."""
    whole = max(0, round(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


_ADVICE = re.compile(
    r"\beagle3-tui (?:(run|resume|attach|stop|status|logs|metrics|endpoint|serve|chat)|(hosts|doctor|artifacts))\b"
)
"""Commands that are about a campaign, and those that are about its host, as messages and findings name them."""


class Output:
    """One command's two streams. With ``as_json`` standard output gets exactly one JSON object.

    ``options`` and ``smoke`` name the campaign: a command that a message advises is for this one, not for the default.
    """

    def __init__(self, as_json: bool, options: Sequence[str] = (), smoke: bool = False) -> None:
        self.as_json = as_json
        self._program = shlex.join(["eagle3-tui", *options])
        self._smoke = " --smoke" if smoke else ""

    def say(self, text: str) -> None:
        """A message for people."""
        print(_ADVICE.sub(self._advice, text), file=sys.stderr, flush=True)

    def _advice(self, found: re.Match[str]) -> str:
        return f"{self._program} {found[1]}{self._smoke}" if found[1] else f"{self._program} {found[2]}"

    def findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.say(describe(finding))

    def give(self, data: Mapping[str, Any], text: str) -> None:
        """The command's data: as JSON when asked for, else as text, if there is any."""
        if self.as_json or text:
            print(json.dumps(data, ensure_ascii=False, allow_nan=False) if self.as_json else text, flush=True)

    def refuse(self, findings: tuple[Finding, ...]) -> NoReturn:
        """End the command because of these findings."""
        self.findings(findings)
        if self.as_json:
            self.give({"findings": [finding.to_json() for finding in findings]}, "")
        raise typer.Exit(exit_code(findings))


@contextmanager
def command(as_json: bool = False, options: Sequence[str] = (), smoke: bool = False) -> Iterator[Output]:
    """Body of a command: a finding becomes words, JSON and an exit code; an interrupt becomes 130."""
    output = Output(as_json, options, smoke)
    try:
        yield output
    except FindingError as problem:
        output.refuse(problem.findings)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise  # typer ends quietly: whoever read our output has seen enough
    except OSError as problem:
        output.refuse((error("laptop_file_unusable", f"{problem}."),))
