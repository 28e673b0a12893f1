"""Runs one attempt of one stage: ``python -m eagle3_backend.stages <run directory>``.

Exit codes: 0 done, 1 a finding of severity error (in the journal), 75 stopped after saving; anything else is a fault.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from eagle3_backend.findings import FindingError
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.states import EXIT_FINDING, EXIT_STOPPED


def main() -> int:
    context = StageContext(Path(sys.argv[1]))
    context.listen_for_stop()
    if context.accepted:
        context.journal.write("accepted", codes=sorted(context.accepted), by=context.spec.get("accepted_by"))
    context.output.mkdir(parents=True, exist_ok=True)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
