from __future__ import annotations

from pathlib import Path

from eagle3_backend.stages.memory import GIB, available_bytes, room_for_two, server_bytes


def plan(device: str, cache: str = "1") -> dict[str, object]:
    return {"device": device, "env": {"VLLM_CPU_KVCACHE_SPACE": cache}}


def test_a_server_in_float32_holds_twice_the_weights_of_its_files() -> None:
    weights = 3 * GIB
    more = server_bytes(plan("cpu"), weights, "float32") - server_bytes(plan("cpu"), weights, "bfloat16")
    assert more == weights


def test_two_servers_on_a_gpu_never_fit(tmp_path: Path) -> None:
    assert not room_for_two(plan("cuda"), tmp_path, "bfloat16")


def test_two_servers_fit_when_their_sum_is_below_what_is_available(tmp_path: Path) -> None:
    too_much = str(available_bytes() // GIB + 1)
    assert not room_for_two(plan("cpu", too_much), tmp_path, "bfloat16")
