from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.stages.target_head import CHUNK, TargetHead  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_target_judges_with_its_whole_vocabulary_and_its_own_norm() -> None:
    generator = torch.Generator().manual_seed(3)
    norm, head = torch.rand(8, generator=generator) + 0.5, torch.randn(40, 8, generator=generator)
    facts = {"rms_norm_eps": 1e-5, "logit_scale": 0.5, "logit_softcap": 3.0}
    last = torch.randn(CHUNK + 9, 8, generator=generator)
    ids = torch.tensor([2, 3, 39])
    choices, kept = TargetHead(facts, {}, norm, head, head).judge(last, ids)
    normed = last.double() / (last.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm
    exact = (3.0 * torch.tanh(0.5 * (normed @ head.double().T) / 3.0)).softmax(-1)
    assert torch.equal(choices, exact.argmax(-1))
    torch.testing.assert_close(kept.double(), exact[:, ids].sum(-1), rtol=1e-5, atol=1e-6)
