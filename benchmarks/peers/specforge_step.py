"""One step of SpecForge 0.2.0: its own model class on the same weights and data, in bfloat16 as its trainer has it.

On a CPU it takes the attention ``sdpa``, its loss in plain torch (`specforge_on_cpu`), and nothing is compiled. Its
teacher is the target's whole head; rows of it outside the draft vocabulary are zero here, so that no row is left out of
the loss. Its head, which its trainer trains, is frozen as those of the others are, and the mean over all rows of each
unrolled step is made the mean over the rows that still have a token, without its decay. With ``counting`` it is as on a
GPU: its two kernels there (FlexAttention, the loss) are stand-ins that allocate and keep what those do and compute
nothing. What torch.compile may save it there is not counted.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo
from peers import specforge_on_cpu  # noqa: F401
from peers.stand_ins import Attention
from specforge.algorithms.eagle3 import model
from specforge.modeling.draft import llama3_eagle
from torch import Tensor
from training_inputs import EPS, STEPS, THETA, Data, Shapes, Weights
from transformers import LlamaConfig

torch._dynamo.config.disable = True


class Step:
    """The gradients of one step's loss, mean over the rows of each of its unrolled steps."""

    def __init__(self, shapes: Shapes, given: Weights, counting: bool = False) -> None:
        config = LlamaConfig(
            hidden_size=shapes.hidden,
            intermediate_size=shapes.intermediate,
            num_hidden_layers=1,
            num_attention_heads=shapes.heads,
            num_key_value_heads=shapes.kv_heads,
            head_dim=shapes.head_dim,
            vocab_size=shapes.vocabulary,
            rms_norm_eps=EPS,
            max_position_embeddings=1 << 18,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
            draft_vocab_size=shapes.draft_vocabulary,
        )
        attention = "flex_attention" if counting else "sdpa"
        torch.set_default_dtype(torch.bfloat16)
        draft = llama3_eagle.LlamaForCausalLMEagle3(config, attention_backend=attention)
        torch.set_default_dtype(torch.float32)
        own = {**given.drafter, "embed_tokens.weight": given.embedding.float()}
        missing = draft.load_state_dict(own, strict=False)
        assert set(missing.missing_keys) <= {"t2d", "d2t"} and not missing.unexpected_keys, missing
        draft.t2d = torch.arange(shapes.vocabulary) < shapes.draft_vocabulary
        draft.freeze_embedding()
        draft.lm_head.weight.requires_grad_(False)
        if counting:
            # Shapes have no values to choose columns by; their numbers choose as many.
            draft.t2d = torch.arange(shapes.draft_vocabulary)
            llama3_eagle.compile_friendly_create_block_mask = lambda *_, **__: None
            llama3_eagle.compile_friendly_flex_attention = _attention
            model.LogSoftmaxLoss = _Loss
        self.model = model.OnlineEagle3Model(draft, length=STEPS, attention_backend=attention)
        rest = given.teacher_head.new_zeros(shapes.vocabulary - shapes.draft_vocabulary, shapes.hidden)
        self.teacher_head = torch.cat([given.teacher_head, rest])

    def gradients(self, given: Data) -> None:
        self._loss(given).backward()

    def _loss(self, given: Data) -> Tensor:
        count = len(given.tokens)
        with torch.no_grad():
            states = torch.nn.functional.rms_norm(given.last.float(), given.last.shape[-1:], eps=EPS)
            target = states.bfloat16() @ self.teacher_head.T
        losses, *_ = self.model(
            input_ids=given.tokens[None],
            attention_mask=torch.ones(1, count, dtype=torch.int64),
            target=target[None],
            loss_mask=torch.ones(1, count, 1, dtype=torch.int64),
            hidden_states=given.aux[None],
        )
        return sum((loss * count / (count - step) for step, loss in enumerate(losses)), torch.zeros(()))


def _attention(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
    return Attention.apply(query, key, value)


class _Loss(torch.autograd.Function):
    """Memory of its loss: logits, labels and mask kept with two numbers a row; the logits become their gradient."""

    @staticmethod
    def forward(context: Any, logits: Tensor, target: Tensor, position_mask: Tensor) -> Tensor:
        rows = logits.new_empty(3, *logits.shape[:-1], dtype=torch.float32)
        context.save_for_backward(logits.detach(), target, position_mask, rows)
        return rows[0].mean()

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return context.saved_tensors[0], None, None
