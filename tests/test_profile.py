from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from eagle3_backend.agent.workspace import Workspace
from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.parameters import ABOVE_ZERO, AT_LEAST, ONE_OF
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.profile import load
from eagle3_backend.shipped import prompt_sets

PROFILES = Path(__file__).parents[1] / "profiles"
MINIMAL = '[host]\naddress = "embedded"\n[target]\nmodel = "m"\n'


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def findings(tmp_path, text):
    with pytest.raises(FindingError) as caught:
        load(write(tmp_path, text))
    return caught.value.findings


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_profile_is_valid_and_finds_its_prompt_files(path):
    profile = load(path)
    kinds, sources = profile.uploads()
    assert kinds["files"] and kinds["published"]
    assert all(source.stat().st_size > 0 for source in sources.values())


def test_the_kimi_drafter_has_64_heads_of_128():
    train = load(PROFILES / "kimi-k2.5-8x-rtx-pro-6000.toml").parameters["train"]
    assert (train.heads, train.head_dim) == (64, 128)


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        (MINIMAL + "[stages.train]\nlearning_rat = 1\n", "stages.train.learning_rat", "learning_rate"),
        (MINIMAL + "[stages.trian]\n", "stages.trian", "train"),
        ('[host]\naddres = "embedded"\n[target]\nmodel = "m"\n', "host.addres", "address"),
        (MINIMAL + "[environments.train]\npythn = 'x'\n", "environments.train.pythn", "python"),
        (MINIMAL + "[stage]\n", "stage", "stages"),
        (MINIMAL + "[environments.trian]\npython = '/x'\n", "environments.trian", "train"),
    ],
)
def test_a_typo_is_an_error_with_the_nearest_right_key(tmp_path, text, path, hint):
    found = [finding for finding in findings(tmp_path, text) if finding.code == "profile_key_unknown"]
    assert [finding.path for finding in found] == [path]
    assert f"'{hint}'" in found[0].fix


def test_every_fault_is_told_at_once(tmp_path):
    text = MINIMAL + "[stages.train]\nepochs = 'many'\n[stages.vocab]\ndraft_vocab = 1\n"
    assert {finding.path for finding in findings(tmp_path, text)} == {"stages.train.epochs", "stages.vocab.draft_vocab"}


def test_a_fault_in_one_table_hides_none_in_another(tmp_path):
    text = "[host]\nprt = 22\n[environments.train]\npythn = 'x'\n[stages]\nvocab = 3\n[stages.train]\nepochs = 0\n"
    paths = {finding.path for finding in findings(tmp_path, text)}
    assert paths == {"host.prt", "environments.train.pythn", "target", "stages.vocab", "stages.train.epochs"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('[host]\naddress = "a"\nport = 70000\n[target]\nmodel = "m"\n', "host.port"),
        ('[host]\naddress = "a"\nworkspace = "data/eagle3"\n[target]\nmodel = "m"\n', "host.workspace"),
        ('[host]\naddress = "a"\nworkspace = ""\n[target]\nmodel = "m"\n', "host.workspace"),
        ('[host]\naddress = "a"\n[target]\nmodel = ""\n', "target.model"),
        (MINIMAL + '[environments.train]\nset = "train-cdua"\n', "environments.train.set"),
        (MINIMAL + "[stages.train]\nlearning_rate = inf\n", "stages.train.learning_rate"),
        (MINIMAL + "[stages.train]\ntrainer = 'specfroge'\n", "stages.train.trainer"),
    ],
)
def test_a_value_that_no_host_could_use_is_refused(tmp_path, text, path):
    assert [finding.path for finding in findings(tmp_path, text)] == [path]


def test_every_file_name_gives_a_campaign_that_hosts_accept(tmp_path):
    stems = ["mine", "my.model_2", "my model", "my-model", "мой профиль", "другой", "-x", ".x", "x" * 200]
    for stem in stems:
        (tmp_path / f"{stem}.toml").write_text(MINIMAL)
    campaigns = [load(tmp_path / f"{stem}.toml").campaign for stem in stems]
    assert campaigns[:2] == stems[:2] and len(set(campaigns)) == len(stems)
    for campaign in campaigns:
        Workspace(tmp_path).attempt(f"{campaign}-generate-{'0' * 16}", 1)


def test_an_editors_byte_order_mark_is_no_fault(tmp_path):
    assert load(write(tmp_path, "\ufeff" + MINIMAL)).target.model == "m"


def test_a_host_is_an_address_or_a_transport_and_never_both(tmp_path):
    (finding,) = findings(tmp_path, '[host]\naddress = "a"\ntransport = ["sh"]\n[target]\nmodel = "m"\n')
    assert finding.path == "host.address"


def test_a_file_that_is_no_toml_is_a_finding(tmp_path):
    assert findings(tmp_path, "[host")[0].code == "profile_invalid"
    with pytest.raises(FindingError):
        load(tmp_path / "absent.toml")


def test_settings_override_the_file_and_are_validated(tmp_path):
    profile = load(write(tmp_path, MINIMAL))
    assert profile.with_settings(["train.epochs=3"]).parameters["train"].epochs == 3
    for wrong in ("train.epochs", "epochs=3", "train.epoch=3", "train.epochs='x'"):
        with pytest.raises(FindingError):
            profile.with_settings([wrong])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("train.epochs=0", ">= 1"),
        ("train.learning_rate=-1.0", "> 0"),
        ("train.step_decay=nan", "> 0"),
        ("generate.max_new_tokens=0", ">= 1"),
        ("bench.layout='sharded'", ["flat", "nested"]),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_range(tmp_path, setting, expected):
    profile = load(write(tmp_path, MINIMAL))
    with pytest.raises(FindingError) as caught:
        profile.with_settings([setting])
    (finding,) = caught.value.findings
    assert finding.path == "--set " + setting.split("=")[0] and finding.expected == expected


def test_every_range_names_a_field_that_some_stage_has():
    known = {entry.name for stage in STAGES.values() for entry in fields(stage.parameters)}
    assert known >= {*AT_LEAST, *ABOVE_ZERO, *ONE_OF}


def test_every_missing_prompt_file_is_named(tmp_path):
    profile = load(write(tmp_path, MINIMAL + "[stages.prompts]\nfiles = ['no.jsonl']\npublished = ['.']\n"))
    with pytest.raises(FindingError) as caught:
        profile.uploads()
    assert [finding.path for finding in caught.value.findings] == ["stages.prompts.files", "stages.prompts.published"]
    assert {finding.code for finding in caught.value.findings} == {"prompt_file_unreadable"}


@pytest.mark.parametrize("name", ["speculators", "specforge"])
def test_a_trainer_of_other_people_has_an_environment_of_its_own_name(tmp_path, name):
    text = f'{MINIMAL}[environments.{name}]\nset = "{name}-cuda"\n[stages.train]\ntrainer = "{name}"\n'
    profile = load(write(tmp_path, text))
    assert STAGES["train"].environment_of(profile.parameters["train"]) == name
    assert profile.environments[name].set == f"{name}-cuda"


def published(folder, name):
    """A profile whose published prompts are these."""
    path = folder / "p.toml"
    path.write_text(f'[host]\naddress = "embedded"\n[target]\nmodel = "m"\n[stages.prompts]\npublished = ["{name}"]\n')
    return path


def test_a_shipped_prompt_set_goes_by_its_name_unless_there_is_such_a_file(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(
        '[host]\naddress = "embedded"\n[target]\nmodel = "m"\n[stages.prompts]\npublished = ["demo-unseen"]\n'
    )
    uploads, sources = load(path).uploads()
    (shipped,) = uploads["published"]
    assert shipped.name == "demo-unseen.jsonl" and sources[shipped.sha256] == prompt_sets()["demo-unseen"]
    (tmp_path / "demo-unseen").write_text("{}")
    assert [upload.name for upload in load(path).uploads()[0]["published"]] == ["demo-unseen"]


def test_a_prompt_file_that_is_missing_is_refused_with_the_names_of_the_shipped_sets(tmp_path):
    path = published(tmp_path, "nothing")
    with pytest.raises(FindingError) as problem:
        load(path).uploads()
    assert problem.value.findings[0].code == "prompt_file_unreadable" and "demo-unseen" in problem.value.findings[0].fix


def test_a_data_set_needs_no_file_and_a_name_of_another_form_is_refused_where_it_stands(tmp_path):
    assert load(published(tmp_path, 'hub:lab/exam:test", "long_context')).uploads() == (
        {"files": [], "published": []},
        {},
    )
    with pytest.raises(FindingError) as problem:
        load(published(tmp_path, "hub:exam")).uploads()
    (finding,) = problem.value.findings
    assert (finding.code, finding.path) == ("prompt_set_name_invalid", "stages.prompts.published")
