"""Reading a data set of a Hugging Face hub where this runs, through the `huggingface_hub` library.

Endpoint, token, redirects, resuming, offline mode and the cache of downloads are the library's. Every train environment
has it (transformers needs it), a laptop only with the extra `hub`. Data are parsed and never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline import hub_sets
from eagle3_backend.pipeline.conversations import Conversation, records_of
from eagle3_backend.pipeline.hub_sets import HubSet, unavailable, unreadable

MAX_BYTES = 512 * 1024 * 1024
"""A split that is larger is refused, packed or unpacked: its prompts are held in memory."""

BATCH = 128
"""Rows of a Parquet file that are unpacked at once."""

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
    reader = _Reader(wanted)

    def records() -> Iterator[tuple[str, Any]]:
        for path in files:
            look()
            try:
                file = Path(api.hf_hub_download(wanted.repository, path, repo_type="dataset", revision=commit))
            except Exception as problem:  # the library's own kinds, and those of what it asks with, which changes
                raise FindingError(unavailable(wanted, f"{path}: {_words(problem.__cause__ or problem)}")) from problem
            for place, record in reader.records(path, file):
                yield f"{path}, {place}", record

    found, bad = hub_sets.conversations_of(wanted, records(), reader.columns)
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


class _Reader:
    """Reads the files of a split; ``columns`` are those that its Parquet files have, read or not."""

    def __init__(self, wanted: HubSet) -> None:
        self._wanted = wanted
        self._unpacked = 0
        self.columns: dict[str, None] = {}

    def records(self, path: str, file: Path) -> Iterator[tuple[str, Any]]:
        """Each record of a file with its place. Raises FindingError."""
        try:
            if path.endswith(".parquet"):
                yield from self._rows(file)
            else:
                yield from records_of(file.read_bytes().decode("utf-8-sig"))
        except ImportError as problem:
            raise FindingError(_missing(self._wanted, "pyarrow", f"Install it to read Parquet ({path})")) from problem
        except UnicodeDecodeError as problem:
            why = f"{path} is not UTF-8 at byte {problem.start}"
            raise FindingError(unreadable(self._wanted, why, "UTF-8")) from problem
        except (
            ValueError,
            OSError,
            NotImplementedError,
            ArithmeticError,
            LookupError,
            TypeError,
            MemoryError,
        ) as problem:
            why = f"{path} is damaged, or of a form that is not known"
            raise FindingError(unreadable(self._wanted, why, "a whole file")) from problem

    def _rows(self, file: Path) -> Iterator[tuple[str, Any]]:
        """The wanted columns of a Parquet file, some rows at a time: others may hold pictures, and a small file may
        unpack to anything."""
        from pyarrow import parquet

        with parquet.ParquetFile(file, pre_buffer=False) as opened:
            names = opened.schema_arrow.names
            self.columns.update(dict.fromkeys(names))
            number = 0
            for batch in opened.iter_batches(BATCH, columns=hub_sets.columns_to_read(self._wanted, names)):
                self._allow(batch.nbytes)
                for row in batch.to_pylist():
                    # Counted as it is held: a dictionary of texts is shared by rows of a batch, and its texts are not.
                    self._unpacked += _size(row)
                    self._allow(self._unpacked)
                    number += 1
                    yield f"row {number}", row

    def _allow(self, size: int) -> None:
        if size > MAX_BYTES:
            raise FindingError(hub_sets.too_large(self._wanted, size, MAX_BYTES))


def _size(value: Any) -> int:
    """About the bytes of what a row holds."""
    if isinstance(value, (str, bytes)):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 8 + sum(map(_size, parts))


def _missing(wanted: HubSet, library: str, fix: str) -> Finding:
    return error(
        f"{library}_missing",
        f"{wanted} cannot be read: {library} is not installed in the Python that reads it.",
        path=str(wanted),
        expected=library,
        fix=f"{fix}, or save what is asked as JSON lines and name that file.",
    )
