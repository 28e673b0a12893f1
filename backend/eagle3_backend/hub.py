"""Reading a data set of a Hugging Face hub where this runs, through the `huggingface_hub` library.

Endpoint, token, redirects, resuming, offline mode and the cache of downloads are the library's. Every train environment
has it (transformers needs it), a laptop only with the extra `hub`. Data are parsed and never run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline import hub_sets
from eagle3_backend.pipeline.conversations import Conversation, records_of
from eagle3_backend.pipeline.hub_sets import HubSet, unavailable, unreadable

MAX_BYTES = 512 * 1024 * 1024
"""A split that is larger is refused: it is read in memory."""

TIMEOUT = 30.0


@dataclass(frozen=True)
class Fetched:
    """A prompt set as it was read: for one of a hub its name ``pinned`` to the commit (else empty), what is in it, and
    what is wrong with records."""

    pinned: str
    conversations: tuple[Conversation, ...]
    bad: tuple[Finding, ...]


def fetch(name: str, look: Callable[[], None] = lambda: None) -> Fetched:
    """Read the set of this name (`hub_sets.FORM`). ``look`` is called before each file, and may raise.

    Raises FindingError when it cannot be had, is too large, or has no column with prompts.
    """
    wanted = hub_sets.parse_name(name)
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars, logging
    except ImportError as problem:
        raise FindingError(_missing(wanted, "huggingface_hub", "Install eagle3-tui[hub]")) from problem
    disable_progress_bars()
    logging.set_verbosity_error()  # its warnings tell addresses, which may be signed ones
    api = HfApi()
    commit, sizes = _look_up(api, wanted)
    files = hub_sets.choose_files(wanted, sizes)
    total = sum(sizes[path] for path in files)
    if total > MAX_BYTES:
        raise FindingError(hub_sets.too_large(wanted, total, MAX_BYTES))
    records: list[tuple[str, Any]] = []
    for path in files:
        look()
        try:
            file = Path(api.hf_hub_download(wanted.repository, path, repo_type="dataset", revision=commit))
        except Exception as problem:  # the library's own kinds, and those of what it asks with, which changes
            raise FindingError(unavailable(wanted, f"{path}: {_words(problem.__cause__ or problem)}")) from problem
        records += [(f"{path}, {place}", record) for place, record in _records(wanted, path, file)]
    found, bad = hub_sets.conversations_of(wanted, records)
    return Fetched(str(wanted.at(commit)), tuple(found), tuple(bad))


def _look_up(api: Any, wanted: HubSet) -> tuple[str, dict[str, int]]:
    """The commit and its files with their bytes: from the hub; from the cache where the hub gives no answer, or is not
    to be asked. Raises FindingError."""
    revision = wanted.revision or None
    try:
        told = api.dataset_info(wanted.repository, revision=revision, files_metadata=True, timeout=TIMEOUT)
        return told.sha, {file.rfilename: file.size or 0 for file in told.siblings}
    except Exception as problem:
        if _status(problem):
            raise FindingError(unavailable(wanted, _words(problem))) from problem
        why = f"{api.endpoint} does not answer as a hub does ({_words(problem)}), nor is it whole in the cache"
    try:
        cached = api.snapshot_download(wanted.repository, repo_type="dataset", revision=revision, local_files_only=True)
    except Exception as problem:
        raise FindingError(unavailable(wanted, why)) from problem
    paths = [path for path in Path(cached).rglob("*") if path.is_file()]
    return Path(cached).name, {path.relative_to(cached).as_posix(): path.stat().st_size for path in paths}


def _status(problem: BaseException) -> int | None:
    return getattr(getattr(problem, "response", None), "status_code", None)


def _words(problem: BaseException) -> str:
    """Of an answer its number alone: the library's text tells the address, which may be a signed one."""
    status = _status(problem)
    if status in (401, 403, 404):
        return f"the hub answers {status}: there is no such thing, or it is not for everybody"
    return f"the hub answers {status}" if status else f"{type(problem).__name__}: {str(problem)[:200].rstrip('. ')}"


def _records(wanted: HubSet, path: str, file: Path) -> list[tuple[str, Any]]:
    """Each record of a file with its place. Raises FindingError."""
    try:
        if not path.endswith(".parquet"):
            return records_of(file.read_bytes().decode("utf-8-sig"))
        from pyarrow import parquet

        rows = parquet.ParquetFile(file).read().to_pylist()
        return [(f"row {number}", row) for number, row in enumerate(rows, 1)]
    except ImportError as problem:
        raise FindingError(_missing(wanted, "pyarrow", f"Install it to read Parquet ({path})")) from problem
    except UnicodeDecodeError as problem:
        raise FindingError(unreadable(wanted, f"{path} is not UTF-8 at byte {problem.start}", "UTF-8")) from problem
    except (ValueError, OSError) as problem:
        raise FindingError(unreadable(wanted, f"{path} is damaged", "a whole file")) from problem


def _missing(wanted: HubSet, library: str, fix: str) -> Finding:
    return error(
        f"{library}_missing",
        f"{wanted} cannot be read: {library} is not installed in the Python that reads it.",
        path=str(wanted),
        expected=library,
        fix=f"{fix}, or save what is asked as JSON lines and name that file.",
    )
