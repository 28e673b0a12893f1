"""Reading a data set of a Hugging Face hub where this runs: two kinds of requests, and the cache of downloads.

The addresses, variables (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, HF_HOME, HF_HUB_CACHE, HF_TOKEN_PATH) and the layout of
the cache are those of the `huggingface_hub` library, which laptops need not have. Data are parsed and never run. The
token goes to the hub alone: not to where it redirects, and into no message.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.conversations import Conversation, records_of
from eagle3_backend.pipeline.hub_sets import (
    HubSet,
    choose_files,
    conversations_of,
    parse_name,
    unavailable,
    unreadable,
)

HUB = "https://huggingface.co"
MAX_BYTES = 512 * 1024 * 1024
"""A split that is larger is refused: it is read in memory."""

TIMEOUT = 30.0
_BLOCK = 1 << 20
Parquet = Callable[[bytes], List[Any]]
"""From a Parquet file to its rows. Raises ImportError without a library, ValueError for what is no such file."""

_YES = ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True)
class Fetched:
    """A data set as it was read: its name ``pinned`` to the commit, what is in it, and what is wrong with records."""

    pinned: str
    conversations: Tuple[Conversation, ...]
    bad: Tuple[Finding, ...]


def fetch(name: str, look: Callable[[], None] = lambda: None, parquet: Optional[Parquet] = None) -> Fetched:
    """Read the set of this name (`hub_sets.FORM`). ``look`` is called between the blocks of a download, and may raise;
    ``parquet`` reads such files, where there is a library for it.

    Raises FindingError when it cannot be had, is too large, or has no column with prompts.
    """
    wanted = parse_name(name)
    source = _open(wanted, look)
    files = choose_files(wanted, source.sizes)
    total = sum(source.sizes[path] for path in files)
    if total > MAX_BYTES:
        raise FindingError(_too_large(wanted, total))
    records: List[Tuple[str, Any]] = []
    for path in files:
        data = source.read(path)
        read = _rows(wanted, path, data, parquet) if path.endswith(".parquet") else _records(wanted, path, data)
        records += [(f"{path}, {place}", record) for place, record in read]
    found, bad = conversations_of(wanted, records)
    return Fetched(str(wanted.at(source.commit)), tuple(found), tuple(bad))


@dataclass(frozen=True)
class _Source:
    """A repository at one commit: its files with their bytes, and how one is read."""

    commit: str
    sizes: Dict[str, int]
    read: Callable[[str], bytes]


def _open(wanted: HubSet, look: Callable[[], None]) -> _Source:
    """From the hub; from the cache where the hub is out of reach, or is not to be asked."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES:
        why = "HF_HUB_OFFLINE is set, and the cache of downloads does not have it"
    else:
        try:
            return _from_hub(wanted, look)
        except (OSError, http.client.HTTPException) as problem:
            if isinstance(problem, urllib.error.HTTPError):
                raise FindingError(unavailable(wanted, _refusal(problem.code))) from problem
            why = f"{urlsplit(_endpoint()).netloc} is out of reach ({_words(problem)})"
    cached = _from_cache(wanted)
    if cached is None:
        raise FindingError(unavailable(wanted, why))
    return cached


def _from_hub(wanted: HubSet, look: Callable[[], None]) -> _Source:
    base = f"{_endpoint()}/api/datasets/{wanted.repository}"
    revision = f"/revision/{quote(wanted.revision, safe='')}" if wanted.revision else ""
    try:
        told = json.loads(_download(f"{base}{revision}?blobs=true", look))
        commit = str(told["sha"])
        sizes = {str(entry["rfilename"]): int(entry.get("size") or 0) for entry in told["siblings"]}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FindingError(unavailable(wanted, f"{_endpoint()} does not answer as a hub does")) from problem

    def read(path: str) -> bytes:
        place = f"{_endpoint()}/datasets/{wanted.repository}/resolve/{quote(commit, safe='')}/{quote(path)}"
        try:
            data = _download(place, look)
        except urllib.error.HTTPError as problem:
            raise FindingError(unavailable(wanted, f"{path}: {_refusal(problem.code)}")) from problem
        except (OSError, http.client.HTTPException) as problem:
            raise FindingError(unavailable(wanted, f"{path}: {_words(problem)}")) from problem
        if sizes[path] and len(data) != sizes[path]:
            raise FindingError(unavailable(wanted, f"{path} broke off at {len(data)} of {sizes[path]} bytes"))
        return data

    return _Source(commit, sizes, read)


def _from_cache(wanted: HubSet) -> Optional[_Source]:
    """What an earlier download of the library left here, None where there is none of this revision."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    root = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
    folder = root / f"datasets--{wanted.repository.replace('/', '--')}"
    try:
        commit = (folder / "refs" / (wanted.revision or "main")).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = wanted.revision
    snapshot = folder / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        return None
    paths = {path.relative_to(snapshot).as_posix(): path for path in snapshot.rglob("*") if path.is_file()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    return _Source(commit, sizes, lambda name: paths[name].read_bytes())


def _records(wanted: HubSet, path: str, data: bytes) -> List[Tuple[str, Any]]:
    """Each record of a file with its place. Raises FindingError."""
    try:
        return records_of(data.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        raise FindingError(unreadable(wanted, f"{path} is not UTF-8 at byte {problem.start}", "UTF-8")) from problem


def _rows(wanted: HubSet, path: str, data: bytes, parquet: Optional[Parquet]) -> List[Tuple[str, Any]]:
    try:
        if parquet is None:
            raise ImportError("there is no reader")
        rows = parquet(data)
    except ImportError as problem:
        raise FindingError(
            error(
                "pyarrow_missing",
                f"{wanted} is stored as Parquet ({path}), which cannot be read here.",
                path=str(wanted),
                expected="pyarrow",
                fix="On a host, install pyarrow into the train environment; else save what is asked as JSON lines and "
                "name that file instead.",
            )
        ) from problem
    except (ValueError, OSError) as problem:
        raise FindingError(unreadable(wanted, f"{path} is no whole Parquet file", "Parquet")) from problem
    return [(f"row {number}", row) for number, row in enumerate(rows, 1)]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """The token stays with the host that it was meant for."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if following is not None and token and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            following.add_unredirected_header("Authorization", token)
        return following


def _download(url: str, look: Callable[[], None]) -> bytes:
    """Raises OSError (HTTPError among them) or HTTPException."""
    request = urllib.request.Request(url, headers={"User-Agent": "eagle3-tui"})
    token = _token()
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(_Redirects)
    parts: List[bytes] = []
    size = 0
    with opener.open(request, timeout=TIMEOUT) as response:
        while True:
            look()
            block = response.read(_BLOCK)
            size += len(block)
            if size > MAX_BYTES:
                raise OSError(f"it goes on beyond {MAX_BYTES} bytes")
            if not block:
                return b"".join(parts)
            parts.append(block)


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def _token() -> str:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if os.environ.get(name, "").strip():
            return os.environ[name].strip()
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    try:
        path = Path(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")).expanduser()
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _refusal(status: int) -> str:
    if status in (401, 403, 404):
        return f"the hub answers {status}: there is no such thing, or it is not for everybody"
    return f"the hub answers {status}"


def _words(problem: BaseException) -> str:
    reason = getattr(problem, "reason", None) or problem
    return str(reason)[:200] or type(problem).__name__


def _too_large(wanted: HubSet, size: int) -> Finding:
    return error(
        "prompt_set_too_large",
        f"{wanted} has {size / 1e6:.0f} MB; up to {MAX_BYTES / 1e6:.0f} MB are read.",
        path=str(wanted),
        expected=MAX_BYTES,
        actual=size,
        fix="Save the part that is needed as JSON lines, and name that file instead.",
    )
