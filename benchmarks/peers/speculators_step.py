"""One step of speculators 0.9.0: its own model class and its own metrics, on the same weights and data.

On a CPU it runs with what it offers for that: attention ``sdpa`` with a dense mask, the loss ``eager``. With
``counting`` it is as on a GPU: its two kernels there (FlexAttention, the fused loss) are stand-ins that allocate and
keep what those do and compute nothing, and its accuracies, which choose rows by value, are left out.
"""

from __future__ import annotations

from typing import Any

import torch
from peers.stand_ins import Attention
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.losses import resolve_loss_config
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig, metrics
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from training_inputs import AUX, EPS, STEPS, THETA, Data, Shapes, Weights
from transformers import LlamaConfig
from transformers.modeling_utils import AttentionInterface


class Step:
    """The gradients of one step's loss, as its trainer calls it: float32 weights under bf16 autocast."""

    def __init__(self, shapes: Shapes, given: Weights, counting: bool = False) -> None:
        layer = LlamaConfig(
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
        )
        layer._attn_implementation = "counted_attention" if counting else "sdpa"
        config = Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=shapes.draft_vocabulary,
            norm_before_residual=False,
            eagle_aux_hidden_state_layer_ids=list(AUX),
            speculators_config=SpeculatorsConfig(
                algorithm="eagle3",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
                default_proposal_method="greedy",
                verifier=VerifierConfig(name_or_path=None, architectures=[]),
            ),
        )
        self.model = Eagle3DraftModel(config)
        own = {name.replace("midlayer.", "layers.0."): value for name, value in given.drafter.items()}
        own |= {
            "embed_tokens.weight": given.embedding.float(),
            "verifier_lm_head.weight": given.teacher_head.float(),
            "verifier_norm.weight": torch.ones(shapes.hidden),
        }
        missing = self.model.load_state_dict(own, strict=False)
        assert set(missing.missing_keys) <= {"t2d", "d2t"} and not missing.unexpected_keys, missing
        self.losses: Any = resolve_loss_config("kl_div", "eager")
        if counting:
            metrics.compute_accuracy_single_step = lambda *_: torch.zeros(4).unbind()
            self.losses = {"kl_div": (_FusedLoss.apply, 1.0)}
            self.model._build_attn_mask = lambda *_, **__: None

    def gradients(self, given: Data) -> None:
        self._loss(given).backward()

    def _loss(self, given: Data) -> Tensor:
        count = len(given.tokens)
        with torch.autocast("cpu", torch.bfloat16):
            _, loss, _ = self.model(
                hidden_states=given.aux[None],
                input_ids=given.tokens[None],
                document_ids=torch.zeros(1, count, dtype=torch.int64),
                loss_mask=torch.ones(1, count, dtype=torch.bool),
                verifier_last_hidden_states=given.last[None],
                ttt_steps=STEPS,
                ttt_step_loss_decay=1.0,
                loss_config=self.losses,
            )
        return loss


def _attention(_module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    states = (entry.contiguous() for entry in (query, key, value))
    return Attention.apply(*states).transpose(1, 2).contiguous(), None


AttentionInterface().register("counted_attention", _attention)


class _FusedLoss(torch.autograd.Function):
    """Memory of the fused loss: both logits and five numbers a row kept, the gradient of the draft's logits made."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor) -> Tensor:
        rows = logits.new_empty(5, *logits.shape[:-1], dtype=torch.float32)
        context.save_for_backward(logits, targets, rows)
        return logits.new_empty(logits.shape[:-1], dtype=torch.float32)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.empty_like(context.saved_tensors[0]), None
