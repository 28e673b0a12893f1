"""Runs benchmarks and writes `results.json` and `ratios.svg`: `run.py [MODULE...]`, all of them without a name."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from measuring import child

MODULES = ("attention", "head_loss", "kernel_tests")
HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


def main(names: list[str]) -> None:
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else {}
    for name in names or MODULES:
        found = importlib.import_module(name).results()
        print(json.dumps({key: {**entry, "runs": None} for key, entry in found.items()}, indent=1), flush=True)
        kept.update(found)
    rows = {key: kept[key] for key in sorted(kept, key=int)}
    text = json.dumps({"rows": rows, "machine": machine()}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    (HERE / "ratios.svg").write_text(drawing(rows), encoding="utf-8")


def machine() -> dict[str, Any]:
    """What ran this, with the speed of a large bf16 product and of a copy on one core as its measure."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), **child(HERE / "calibration.py")}


def drawing(rows: dict[str, dict[str, Any]]) -> str:
    """Every ratio as a bar against what it must reach (the line at 1): longer is better, grey is not met."""
    bars = [
        (f"{key} {name.removeprefix('at_most_')}", _share(name, entry["ratio"][name], reach))
        for key, entry in rows.items()
        for name, reach in entry["reach"].items()
    ]
    unit, label, line = 160, 220, 22
    parts = [
        f'<text x="{label - 8}" y="{place * line + 16}" text-anchor="end">{name}</text>'
        f'<rect x="{label}" y="{place * line + 4}" width="{min(share, 3) * unit:.0f}" height="14" '
        f'fill="{"#2a7f4f" if share >= 1 else "#999999"}"/>'
        f'<text x="{label + min(share, 3) * unit + 6:.0f}" y="{place * line + 16}">{share:.2f}</text>'
        for place, (name, share) in enumerate(bars)
    ]
    height = len(bars) * line + 8
    goal = f'<line x1="{label + unit}" x2="{label + unit}" y1="0" y2="{height}" stroke="black"/>'
    size = f'width="{label + 3 * unit + 60}" height="{height}"'
    body = "\n".join([*parts, goal])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'


def _share(name: str, ratio: float, reach: float) -> float:
    """How many times over a bound is met."""
    if not name.startswith("at_most_"):
        return ratio / reach
    return reach / ratio if ratio > 0 else 1.0 + reach


if __name__ == "__main__":
    main(sys.argv[1:])
