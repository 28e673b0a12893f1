from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.pipeline.fingerprint import fingerprint, output_parameters
from eagle3_backend.pipeline.plan import Upload, plan_campaign, spec_of, to_run
from eagle3_backend.pipeline.stages import STAGES, needed


@pytest.fixture
def parameters():
    return {name: stage.parameters() for name, stage in STAGES.items()}


def plan(parameters, files=("a",), workspace="/w"):
    uploads = {"files": [Upload("p.jsonl", name * 64) for name in files], "published": []}
    return plan_campaign("demo", workspace, parameters, uploads)


def test_every_stage_reads_only_stages_that_stand_before_it():
    names = list(STAGES)
    for stage in STAGES.values():
        assert all(names.index(read) < names.index(stage.name) for read in (*stage.reads, *stage.after))


def test_bench_does_not_need_serve_or_evaluate():
    assert needed("bench") == ("setup", "target", "prompts", "generate", "extract", "vocab", "train", "export", "bench")


def test_a_parameter_that_changes_the_output_changes_this_stage_and_all_below_it(parameters):
    before = plan(parameters)
    after = plan({**parameters, "vocab": replace(parameters["vocab"], draft_vocab_size=99)})
    changed = {name for name in STAGES if before.stages[name].fingerprint != after.stages[name].fingerprint}
    assert changed == {"vocab", "train", "evaluate", "export", "serve", "bench", "diagnose", "trace"}


def test_a_parameter_that_only_changes_the_pace_changes_no_fingerprint(parameters):
    before = plan(parameters)
    after = plan({**parameters, "generate": replace(parameters["generate"], concurrency=1, tensor_parallel=8)})
    assert before.stages == {
        name: replace(stage, parameters=before.stages[name].parameters) for name, stage in after.stages.items()
    }


def test_aux_layers_belong_to_extract_and_leave_the_answers_alone(parameters):
    before = plan(parameters)
    after = plan({**parameters, "extract": replace(parameters["extract"], aux_layers=(1, 2, 3))})
    assert before.stages["generate"].fingerprint == after.stages["generate"].fingerprint
    assert before.stages["extract"].fingerprint != after.stages["extract"].fingerprint


def test_prompt_files_enter_by_content_and_not_by_order_or_place(parameters):
    assert plan(parameters, "ab").stages["prompts"].fingerprint == plan(parameters, "ba").stages["prompts"].fingerprint
    assert plan(parameters, "a").stages["prompts"].fingerprint != plan(parameters, "b").stages["prompts"].fingerprint
    assert plan(parameters).stages["train"].fingerprint == plan(parameters, workspace="/x").stages["train"].fingerprint


def test_a_data_set_enters_by_its_name_and_is_not_sent(parameters):
    def prompts(*published):
        return plan({**parameters, "prompts": replace(parameters["prompts"], published=published)}).stages["prompts"]

    before, one, other = plan(parameters).stages["prompts"], prompts("hub:lab/exam:test"), prompts("hub:lab/exam:dev")
    assert len({before.fingerprint, one.fingerprint, other.fingerprint, prompts("long_context").fingerprint}) == 4
    assert before.fingerprint == prompts("a-file.jsonl").fingerprint and before.inputs == one.inputs


def test_a_raised_stage_version_gives_another_fingerprint(parameters):
    stage = STAGES["vocab"]
    older = fingerprint(stage, parameters["vocab"], {})
    assert fingerprint(replace(stage, version=stage.version + 1), parameters["vocab"], {}) != older


def test_only_what_is_not_fresh_has_to_run(parameters):
    fresh = {"setup", "target", "prompts", "generate"}
    assert [stage.name for stage in to_run(plan(parameters), ["train"], fresh)] == ["extract", "vocab", "train"]


def test_one_start_of_several_runs_each_need_once_and_a_service_last(parameters):
    fresh = {"setup", "target", "prompts", "generate", "extract", "vocab", "train"}
    chain = to_run(plan(parameters), ["serve", "bench", "evaluate"], fresh)
    assert [stage.name for stage in chain] == ["evaluate", "export", "bench", "serve"]


def test_the_plan_names_what_made_a_stage_out_of_date(parameters):
    now = plan(parameters)
    old = {"target": now.stages["target"].fingerprint, "extract": "another", "vocab": now.stages["vocab"].fingerprint}
    assert now.outdated_by("train", old) == ("extract",)


def test_a_spec_holds_the_paths_of_what_the_stage_reads(parameters):
    planned = plan(parameters).stages["prompts"]
    spec = spec_of(planned, python="/env/bin/python", payload="f" * 64, input_fingerprints={})
    assert spec["inputs"]["files"] == [f"/w/.eagle3/uploads/{'a' * 64}/p.jsonl"]
    assert spec["argv"] == ["/env/bin/python", "-m", "eagle3_backend.stages", "{run_directory}"]
    assert spec["engine"] is None


def adopting(parameters, stage, value):
    return {**parameters, stage: replace(parameters[stage], adopt=value)}


def test_an_adopted_drafter_needs_neither_training_nor_a_vocabulary(parameters):
    adopted = plan(adopting(parameters, "export", "/drafters/one"))
    assert adopted.needed("serve") == ("setup", "target", "export", "serve")
    assert adopted.needed("bench") == ("setup", "target", "prompts", "generate", "export", "bench")
    assert [stage.name for stage in to_run(adopted, ["serve"], {"setup"})] == ["target", "export", "serve"]
    assert adopted.stages["export"].inputs == {"target": adopted.stages["target"].output}


def test_without_adoption_a_campaign_needs_what_is_declared(parameters):
    for name in STAGES:
        assert plan(parameters).needed(name) == needed(name)


def test_an_adopted_drafter_is_known_by_its_path_and_not_by_the_training_it_replaces(parameters):
    one, other = (plan(adopting(parameters, "export", path)).stages["export"] for path in ("/one", "/other"))
    assert one.fingerprint != other.fingerprint
    longer = {**parameters, "train": replace(parameters["train"], epochs=99)}
    assert plan(adopting(longer, "export", "/one")).stages["export"].fingerprint == one.fingerprint


@pytest.mark.parametrize(("stage", "value"), [("generate", True), ("extract", "/states")])
def test_adopted_answers_and_states_make_artifacts_of_their_own(parameters, stage, value):
    before, after = plan(parameters), plan(adopting(parameters, stage, value))
    assert before.stages[stage].fingerprint != after.stages[stage].fingerprint
    assert after.needed(stage) == needed(stage)


def test_a_parameter_that_came_later_leaves_what_was_made_before_it_as_it_is(parameters):
    train = parameters["train"]
    assert train.trainer == "native" and "trainer" not in output_parameters(train)
    assert output_parameters(replace(train, trainer="speculators"))["trainer"] == "speculators"


@pytest.mark.parametrize("trainer", ["speculators", "specforge"])
def test_another_trainer_makes_another_drafter_and_nothing_above_it(parameters, trainer):
    before = plan(parameters)
    after = plan({**parameters, "train": replace(parameters["train"], trainer=trainer)})
    changed = {name for name in STAGES if before.stages[name].fingerprint != after.stages[name].fingerprint}
    assert changed == {"train", "evaluate", "export", "serve", "bench", "diagnose", "trace"}
    assert (after.stages["train"].environment, after.stages["export"].environment) == (trainer, "train")
