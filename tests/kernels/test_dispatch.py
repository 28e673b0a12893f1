from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eagle3_kernels import dispatch  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def fresh():
    dispatch._gpu_path.cache_clear()
    yield
    dispatch._gpu_path.cache_clear()


def test_a_cpu_takes_plain_torch_without_a_word() -> None:
    assert dispatch.kernel_path(torch.device("cpu")) == dispatch.Path("torch")


def test_a_gpu_that_can_build_kernels_takes_triton(fresh, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "triton_fault", lambda device: "")
    assert dispatch.kernel_path(torch.device("cuda")) == dispatch.Path("triton")


def test_a_gpu_host_without_a_compiler_falls_back_and_says_so_once(fresh, monkeypatch, recwarn) -> None:
    monkeypatch.setattr(dispatch, "triton_fault", lambda device: "RuntimeError: Failed to find C compiler")
    paths = {dispatch.kernel_path(torch.device("cuda")) for _ in range(3)}
    assert paths == {dispatch.Path("torch", "RuntimeError: Failed to find C compiler")}
    assert [str(entry.message) for entry in recwarn if "C compiler" in str(entry.message)] == [
        "Kernels run as plain torch, slower and with more memory: RuntimeError: Failed to find C compiler"
    ]


def test_what_keeps_a_kernel_from_running_is_told() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here, on which a kernel may well run")
    assert dispatch.triton_fault(torch.device("cuda")).split(":")[0] in ("RuntimeError", "AssertionError")


def test_the_probe_runs_where_triton_can(triton_path) -> None:
    assert dispatch.triton_fault(torch.device("cpu")) == ""
