"""The launches of a chain: engines of serve, bench and trace with their drafter, and what stands against each of them.

Everything here is quick. What the installed engine can be asked takes it half a minute of imports, so the options of a
launch are checked only where they are known already, and it is said where they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.hostview import machine_of
from eagle3_backend.drafter.inspection import Inspection
from eagle3_backend.drafter.reading import layout_of
from eagle3_backend.engines import preflight
from eagle3_backend.engines.launch import with_drafter, with_measurement, with_profiler
from eagle3_backend.engines.options import Surface, check_installation, check_options, surface_key
from eagle3_backend.engines.plan import Plan, of_operator, options_of
from eagle3_backend.engines.preflight import Launch
from eagle3_backend.engines.preflight.launch import Host
from eagle3_backend.findings import Finding, FindingError, error, info
from eagle3_backend.serving.surfaces import SurfaceCache, packaged

LAUNCHING = ("serve", "bench", "trace")
"""Stages that launch an engine with a drafter."""
IDENTITY_SECONDS = 70.0
SHARED_MEMORY = "/dev/shm"

Spec = Mapping[str, Any]


def launch_plan(spec: Spec, aux_layers: Sequence[int] | None = None) -> Plan:
    """What a stage of `LAUNCHING` will launch with its drafter; ``aux_layers`` None: not trained yet."""
    parameters = spec["parameters"]
    plan = with_drafter(spec["engine"], drafter_of(spec), parameters["depth"], aux_layers)
    plan = of_operator(plan, parameters.get("options") or {})
    if spec["stage"] == "serve":
        return plan
    plan = with_measurement(plan, drafting=True)
    if spec["stage"] == "bench":
        return plan
    return with_profiler(plan, f"{spec['output']}/traces/drafted", parameters["steps"])


def drafter_of(spec: Spec) -> str:
    """The drafter's directory on the host."""
    return f"{spec['inputs']['drafter']}/{spec['parameters']['layout']}"


def plans_of(campaign: Campaign, specs: Sequence[Spec]) -> dict[str, Plan]:
    """The launches of a chain by stage."""
    artifact = campaign.survey.artifacts.get(campaign.plan.stages["export"].output)
    made = {spec["stage"] for spec in specs}
    known = artifact["summary"].get("aux_layers") if artifact and "export" not in made else None
    return {spec["stage"]: launch_plan(spec, known) for spec in specs if spec["stage"] in LAUNCHING}


async def check(campaign: Campaign, cache_dir: Path, specs: Sequence[Spec]) -> list[Finding]:
    """What stands against the launches of a chain. What the chain has yet to make (environment, target, drafter) is
    looked at by the stage itself. Raises LinkLost."""
    plans, made = plans_of(campaign, specs), {spec["stage"] for spec in specs}
    found: list[Finding] = []
    adopted = next((str(spec["parameters"].get("adopt") or "") for spec in specs if spec["stage"] == "export"), "")
    for spec in specs:
        if spec["stage"] in plans:
            one = _Launching(campaign, cache_dir, spec, plans[spec["stage"]], made, adopted)
            found += [finding for finding in await one.findings() if finding not in found]
    return found


class _Launching:
    """One launch; ``made`` are the stages that the chain runs, ``adopted`` the directory that its export takes, which
    has one layout alone; empty where there is none."""

    def __init__(
        self, campaign: Campaign, cache_dir: Path, spec: Spec, plan: Plan, made: set[str], adopted: str
    ) -> None:
        self._campaign = campaign
        self._request = campaign.session.request
        self._cache = SurfaceCache(cache_dir)
        self._spec, self._plan, self._made, self._adopted = spec, plan, made, adopted

    async def findings(self) -> list[Finding]:
        identity, found = await self._identity()
        drafter = await self._drafter()
        target = await self._inspected("target", str(self._spec["inputs"]["target"]))
        if drafter is not None and (drafter.config is None or self._of_other_layout(drafter.config)):
            found.append(_no_drafter(self._spec, drafter))
        launch = Launch.of(
            self._plan,
            version=release_of(identity),
            drafter=drafter.config if drafter else None,
            target=target.config if target else None,
            inventory=drafter.inventory if drafter else None,
            host=await self._host(),
        )
        return [*found, *preflight.check(launch), *self._options(identity)]

    async def _identity(self) -> tuple[dict[str, Any] | None, list[Finding]]:
        """What is installed, which takes no import; None where setup has not run yet."""
        if "setup" in self._made:
            return None, []
        try:
            told = await self._request(
                "engine_options",
                timeout=IDENTITY_SECONDS,
                python=self._plan["argv"][0],
                engine=self._plan["engine"],
                identity_only=True,
            )
        except FindingError as problem:
            return None, list(problem.findings)
        return told["identity"], check_installation(told["identity"])

    async def _drafter(self) -> Inspection | None:
        """The exported one, or the directory that the export is about to adopt; None while there is neither."""
        if self._adopted:
            return Inspection.from_json(await self._request("inspect", path=self._adopted))
        return await self._inspected("export", drafter_of(self._spec))

    def _of_other_layout(self, config: Mapping[str, Any]) -> bool:
        return bool(self._adopted) and layout_of(config) != self._spec["parameters"]["layout"]

    async def _inspected(self, stage: str, path: str) -> Inspection | None:
        """A directory of the host, None where the chain has yet to make it."""
        if stage in self._made:
            return None
        return Inspection.from_json(await self._request("inspect", path=path))

    async def _host(self) -> Host:
        machine = machine_of(await self._request("telemetry"))
        mounts = (await self._request("probe", what="disk", paths=[SHARED_MEMORY]))["mounts"]
        shared = next((entry["free_bytes"] for entry in mounts if entry["mount"] == SHARED_MEMORY), None)
        chosen = self._spec.get("gpus") or [gpu.uuid for gpu in machine.gpus]
        return Host.of(
            {
                "gpus": [asdict(gpu) for gpu in machine.gpus if gpu.uuid in chosen],
                "nvlink": False if self._campaign.profile.host.pcie_only else None,
                "shm_free_bytes": shared,
            }
        )

    def _options(self, identity: Mapping[str, Any] | None) -> list[Finding]:
        if identity is None or not identity.get("module"):
            return []
        surface = known_surface(self._cache, self._plan["engine"], identity)
        if surface is None:
            return [_unchecked(self._plan["engine"], identity)]
        return check_options(surface, options_of(self._plan["argv"]), others=[packaged(self._plan["engine"])])


def known_surface(cache: SurfaceCache, engine: str, identity: Mapping[str, Any]) -> Surface | None:
    """The options of what is installed, without asking it: as it told them before, or the packaged ones of the same
    release."""
    shipped = packaged(engine)
    if found := cache.get(surface_key(identity)):
        return found
    return shipped if release_of(identity) == release_of({"version": shipped.version}) else None


def release_of(identity: Mapping[str, Any] | None) -> str:
    """The release without what a build adds to it; empty where it is not known."""
    return str((identity or {}).get("version") or "").partition("+")[0]


def _no_drafter(spec: Spec, found: Inspection) -> Finding:
    layout = spec["parameters"]["layout"]
    return error(
        "drafter_missing",
        f"There is no drafter in the layout '{layout}' that could be read"
        + "".join(f": {finding.message}" for finding in found.findings[:1]),
        path=f"{spec['stage']}.layout",
        expected="flat or nested, as exported",
        actual=layout,
        fix="Set the layout to one that was exported, or export again.",
    )


def _unchecked(engine: str, identity: Mapping[str, Any]) -> Finding:
    return info(
        "engine_options_unchecked",
        f"The launch was not checked against the options of the installed {engine} {identity.get('version')}: it has "
        "not been asked for them yet, which takes it half a minute.",
        path=f"environments.{engine}",
        actual=identity.get("version"),
        fix="eagle3-tui engines --host H asks it once, and later launches are checked.",
    )
