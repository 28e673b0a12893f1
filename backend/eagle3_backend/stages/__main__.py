"""Runs one attempt of one stage: ``python -m eagle3_backend.stages <run directory>``.

Exit codes: 0 done, 1 a finding of severity error (in the journal), 75 stopped after saving. An exception that is none
of these is a finding, too, and its traceback is in the log.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
import traceback
from pathlib import Path

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.states import EXIT_FINDING, EXIT_STOPPED


def main() -> int:
    context = StageContext(Path(sys.argv[1]))
    context.listen_for_stop()
    if context.accepted:
        context.journal.write("accepted", codes=sorted(context.accepted), by=context.spec.get("accepted_by"))
    context.output.mkdir(parents=True, exist_ok=True)
    # Threads that wait for each other sleep instead of spinning, on shared cores too; read when torch loads OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    module = importlib.import_module(f"eagle3_backend.stages.{context.stage.name}")
    try:
        module.run(context)
    except FindingError as problem:
        for finding in problem.findings:
            context.report(finding)
            print(f"{finding.code}: {finding.message}", file=sys.stderr, flush=True)
        return EXIT_FINDING
    except Stopped:
        context.journal.note("Stopped after saving.")
        return EXIT_STOPPED
    except Exception as problem:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            context.report(fault(problem))
        return EXIT_FINDING
    return 0


def fault(problem: Exception) -> Finding:
    """The finding for an exception that no stage turned into one of its own."""
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"No space is left on the host: {problem}."
        return error("disk_space_insufficient", message, path=problem.filename, fix="Make room there, then resume.")
    message = f"The stage broke off: {type(problem).__name__}: {problem}"[:1000]
    return error("stage_fault", message, fix="Its log has the whole traceback.")


if __name__ == "__main__":
    sys.exit(main())
