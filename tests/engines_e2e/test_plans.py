"""Launch plans before the engines' own parsers, as installed: every plan for the reference targets is taken as meant.

No server starts, and no GPU is needed. The targets' configs come from `EAGLE3_REFERENCE_CONFIGS` (default
``../shared/reference-configs``).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from eagle3_backend.drafter.aux_layers import default_layers
from eagle3_backend.drafter.config import Packaging, drafter_for
from eagle3_backend.drafter.layouts import flat_config
from eagle3_backend.engines import launch
from eagle3_backend.engines.options import Surface, check_installation, check_options
from eagle3_backend.engines.plan import Wishes, options_of
from eagle3_backend.engines.preflight import Launch, check
from eagle3_backend.serving.surfaces import packaged

pytestmark = pytest.mark.engines

REPOSITORY = Path(__file__).parents[2]
CONFIGS = Path(os.environ.get("EAGLE3_REFERENCE_CONFIGS", REPOSITORY.parent / "shared" / "reference-configs"))
TARGETS = sorted(CONFIGS.glob("target-*.json"))
ENGINES = ("vllm", "sglang")
PORT = 4711
DEPTHS = (1, 3, 7)


@pytest.fixture(scope="session")
def pythons(laptop, workspace, sglang_environment):
    """The interpreter of each engine's environment: vLLM's by setup, SGLang's parser beside it."""
    ended = laptop.call("run", "--through", "setup", "--json", timeout=1700)
    assert ended.code == 0, ended.stderr[-4000:]
    vllm = ended.json["result"]["environments"]["vllm"]["python"]
    return {"vllm": vllm, "sglang": sglang_environment.build(workspace.parent / "sglang", vllm)}


@pytest.fixture(scope="session")
def parse(pythons):
    """Lets an engine's own parser read commands: one answer for each."""

    def ask(engine, commands):
        script = REPOSITORY / "tests" / "support" / "engine_parsers.py"
        ended = subprocess.run(
            [pythons[engine], str(script), engine],
            input=json.dumps(commands),
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        )
        answers = json.loads(ended.stdout.splitlines()[-1])
        assert len(answers) == len(commands)
        return answers

    return ask


@pytest.fixture(scope="session")
def surfaces(pythons):
    """The options of both engines, as the probe reads them in their environments."""
    found = {}
    for engine, python in pythons.items():
        ended = subprocess.run(
            [python, "-m", "eagle3_backend.stages.option_surface", engine],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "backend"), "PYTHONSAFEPATH": "1"},
            stdout=subprocess.PIPE,
            timeout=300,
            check=True,
        )
        found[engine] = json.loads(ended.stdout.splitlines()[-1])
    return found


def plans_of(engine, path):
    """Every plan that the product makes for a target, with the wishes behind it."""
    target = json.loads(path.read_text(encoding="utf-8"))
    text = target.get("text_config") or target
    experts = any(text.get(key) for key in ("n_routed_experts", "num_experts", "num_local_experts"))
    layers = default_layers(text["num_hidden_layers"])
    for depth in DEPTHS:
        for parallel in (1, 8):
            wishes = Wishes(
                "cuda",
                "bfloat16",
                min(32768, text["max_position_embeddings"]),
                model=str(path.parent),
                concurrency=64,
                tensor_parallel=parallel,
                expert_parallel=bool(experts) and parallel > 1,
                memory_share=0.85 if depth == 3 else None,
                pcie_only=parallel > 1,
                trust_remote_code="auto_map" in target,
            )
            server = launch.plan_server(engine, "python", wishes)
            drafting = launch.with_drafter(server, "/drafts/one", depth, aux_layers=layers)
            yield target, wishes, 0, server
            yield target, wishes, depth, drafting
            yield target, wishes, depth, launch.with_measurement(drafting, drafting=True)
            yield target, wishes, 0, launch.with_ngram(server, depth)
            yield target, wishes, 0, launch.with_own_head(server, depth)
            if engine == "vllm":
                capture = [*layers, text["num_hidden_layers"]]
                yield target, wishes, 0, launch.with_capture(server, capture, "/captures")


def words_of(plan, key_file):
    """What the engine's parser gets: the words after the program and its command, open places filled in."""
    argv = plan["argv"]
    first = argv.index("serve") + 1 if "serve" in argv else argv.index("sglang.launch_server") + 1
    values = {"{port}": str(PORT), "{config}": str(key_file)}
    return [values.get(word, word) for word in argv[first:]]


def expected(engine, wishes, depth):
    """What a plan has to mean to its engine, by the engine's own names."""
    if engine == "vllm":
        values = {
            "model": wishes.model,
            "max_model_len": wishes.context,
            "max_num_seqs": wishes.concurrency,
            "tensor_parallel_size": wishes.tensor_parallel,
            "enable_expert_parallel": wishes.expert_parallel,
            "trust_remote_code": wishes.trust_remote_code,
            "disable_custom_all_reduce": wishes.tensor_parallel > 1,
        }
        if depth:
            values["speculative_config"] = {
                "method": "eagle3",
                "model": "/drafts/one",
                "num_speculative_tokens": depth,
            }
    else:
        values = {
            "model_path": wishes.model,
            "context_length": wishes.context,
            "max_running_requests": wishes.concurrency,
            "tp_size": wishes.tensor_parallel,
            "ep_size": wishes.tensor_parallel if wishes.expert_parallel else 1,
            "trust_remote_code": wishes.trust_remote_code,
            "disable_custom_all_reduce": wishes.tensor_parallel > 1,
            "api_key": "a-key",
        }
        if depth:
            values.update(
                speculative_algorithm="EAGLE3",
                speculative_draft_model_path="/drafts/one",
                speculative_num_steps=depth,
                speculative_eagle_topk=1,
                speculative_num_draft_tokens=depth + 1,
            )
    return {"host": "127.0.0.1", "port": PORT, **values}


def test_the_reference_targets_are_there():
    if not TARGETS:
        if os.environ.get("CI"):
            pytest.fail(f"the reference configs are required in CI and are not at {CONFIGS}")
        pytest.skip(f"no reference configs at {CONFIGS}: set EAGLE3_REFERENCE_CONFIGS")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engines_own_parser_takes_every_plan_as_it_is_meant(engine, parse, tmp_path):
    key_file = tmp_path / "key.yaml"
    key_file.write_text('api-key: "a-key"\n')
    plans = [entry for path in TARGETS for entry in plans_of(engine, path)]
    answers = parse(engine, [words_of(plan, key_file) for *_, plan in plans])
    for (_, wishes, depth, plan), answer in zip(plans, answers, strict=True):
        assert "values" in answer, (plan["argv"], answer)
        wanted = expected(engine, wishes, depth)
        assert {name: answer["values"].get(name) for name in wanted} == wanted
    print(f"{engine}: {len(plans)} plans for {len(TARGETS)} targets")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_parser_refuses_what_this_product_refuses(engine, parse, surfaces):
    """The negative control: the answers above are no formality."""
    required = ["m"] if engine == "vllm" else ["--model-path", "m"]
    wrong = [
        {"--max-draft-tokens-per-step": 3},
        {"--dtype": "bf16"},
        {"--port": "eighty"},
        {"--enable-metrics" if engine == "sglang" else "--enforce-eager": "3"},
    ]
    commands = [[*required, *(str(word) for pair in options.items() for word in pair)] for options in wrong]
    assert [list(answer) for answer in parse(engine, commands)] == [["refused"]] * len(wrong)
    surface = Surface.from_json(surfaces[engine])
    assert all(check_options(surface, options) for options in wrong)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_plan_passes_the_options_as_installed_and_the_preflight(engine, surfaces):
    surface = Surface.from_json(surfaces[engine])
    for path in TARGETS:
        for target, _, depth, plan in plans_of(engine, path):
            layers = default_layers(target["num_hidden_layers"])
            drafter = flat_config(drafter_for({"rms_norm_eps": 1e-6, **target}, layers, 32000), Packaging())
            facts = {"drafter": drafter} if depth else {}
            errors = [
                finding
                for finding in (
                    *check_options(surface, options_of(plan["argv"])),
                    *check(Launch.of(plan, target=target, **facts)),
                )
                if finding.severity.value == "error"
            ]
            assert errors == [], (path.name, plan["argv"])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_packaged_options_are_those_of_the_release(engine, surfaces):
    told, shipped = surfaces[engine], packaged(engine)
    assert told["faults"] == []
    assert check_installation(told) == []
    assert told["version"] == shipped.version
    installed = Surface.from_json(told)
    assert {option.name for option in installed.flags} == {option.name for option in shipped.flags}
    assert [option.name for option in installed.fields] == [option.name for option in shipped.fields]
    assert [option.choices for option in installed.fields] == [option.choices for option in shipped.fields]
