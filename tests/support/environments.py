"""Builds the train environment through the product's own setup stage: ``environments.py <build folder>``.

The workspace is ``<build folder>/e2e``, which the tests with engines use too; ``<build folder>/train`` links to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROFILE = """[host]
address = "embedded"
workspace = "{workspace}"
[environments.train]
set = "train-cpu"
[target]
model = "demo:smollm2-135m"
"""


def main() -> None:
    build = Path(sys.argv[1])
    build.mkdir(parents=True, exist_ok=True)
    profile = build / "environments.toml"
    profile.write_text(PROFILE.format(workspace=build / "e2e"))
    folders = {f"XDG_{kind}_HOME": str(build / "laptop" / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
    command = [sys.executable, "-m", "eagle3_tui.cli", "--profile", str(profile), "--no-input"]
    ended = subprocess.run(
        [*command, "run", "--through", "setup", "--json"],
        env={**os.environ, **folders},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    python = Path(json.loads(ended.stdout)["result"]["environments"]["train"]["python"])
    link = build / "train"
    link.unlink(missing_ok=True)
    link.symlink_to(python.parent.parent)


if __name__ == "__main__":
    main()
