"""What is asked of a server of either engine, and what its answers tell of drafting.

vLLM tells the accepted tokens of every verify step, in order (``--per-request-spec-decode-metrics detailed``); SGLang
tells how many steps of a request accepted how many tokens.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.findings import Finding, warning

POLL = 0.2
"""How often a waiting caller looks whether it should go on, seconds."""


@dataclass(frozen=True)
class Prompt:
    """One user message, the first of its conversation, after the ``system`` message where there is one."""

    id: str
    source: str
    text: str
    system: str = ""

    @property
    def messages(self) -> List[Dict[str, str]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]


@dataclass(frozen=True)
class Steps:
    """The verify steps of one answer: how many, and the draft tokens accepted in them all.

    ``histogram`` counts the steps that accepted 0, 1, 2, ... tokens; ``in_order`` holds the accepted tokens of each
    step. Both are empty where the engine does not tell them, or nothing was drafted.
    """

    count: int = 0
    accepted: int = 0
    histogram: Tuple[int, ...] = ()
    in_order: Tuple[int, ...] = ()

    @classmethod
    def of_order(cls, accepted: Sequence[int]) -> Steps:
        """From the accepted tokens of each step."""
        histogram = tuple(sum(each == number for each in accepted) for number in range(max(accepted, default=-1) + 1))
        return cls(len(accepted), sum(accepted), histogram, tuple(accepted))

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any]) -> Steps:
        """From an SGLang response's ``meta_info``. Releases without a histogram tell the sums alone."""
        histogram = tuple(meta.get("spec_correct_drafts_histogram") or ())
        count = int(meta.get("spec_verify_ct") or 0)
        accepted = int(meta.get("spec_num_correct_drafts") or 0)
        consistent = sum(histogram) == count and sum(map(_product, enumerate(histogram))) == accepted
        return cls(count, accepted, histogram if consistent else ())

    def within(self, depth: int) -> int:
        """Accepted tokens, had no step accepted more than ``depth``; all of them where the histogram is not known."""
        if not self.histogram:
            return self.accepted
        return sum(min(number, depth) * steps for number, steps in enumerate(self.histogram))


def _product(pair: Tuple[int, int]) -> int:
    return pair[0] * pair[1]


@dataclass(frozen=True)
class Answer:
    """What came back for a prompt: token ids as the engine saw them (empty where it does not tell), wall seconds of the
    whole request, its verify steps (none without a drafter), and the number of generated tokens. ``arrivals`` of a
    streamed answer are (seconds since the request, tokens that came at once)."""

    prompt: Prompt
    prompt_tokens: Tuple[int, ...]
    tokens: Tuple[int, ...]
    text: str
    finish_reason: str
    seconds: float
    steps: Steps = Steps()
    generated: int = 0
    arrivals: Tuple[Tuple[float, int], ...] = ()

    @property
    def gaps(self) -> List[float]:
        """Seconds between one arrival of a streamed answer and the next."""
        return [later[0] - earlier[0] for earlier, later in zip(self.arrivals, self.arrivals[1:])]

    def is_cut(self, wanted: int) -> bool:
        """Whether the end of the context stopped it before the ``wanted`` tokens, of which an engine says nothing."""
        return self.finish_reason == "length" and self.generated < wanted


@dataclass(frozen=True)
class Refusal:
    """A prompt that the engine refused, with its words."""

    prompt: Prompt
    reason: str


def refused(refusals: Sequence[Refusal], asked: int, fix: str) -> Finding:
    """That of so many ``asked`` prompts these are left out; ``fix`` says what else may be done."""
    first = refusals[0]
    who = "a prompt, which is" if len(refusals) == 1 else f"{len(refusals)} of {asked} prompts, which are"
    return warning(
        "prompt_refused",
        f"The engine refused {who} left out: {first.reason[:400]}",
        path=f"{first.prompt.source}:{first.prompt.id}",
        fix=fix,
    )


def chat_body(engine: str, model: str, prompt: Prompt, max_new_tokens: int) -> Dict[str, Any]:
    """A greedy request to ``/v1/chat/completions`` that asks for token ids, and of SGLang for its drafting."""
    body = {
        "model": model,
        "messages": prompt.messages,
        "temperature": 0,
        "max_tokens": max_new_tokens,
        "return_token_ids": True,
    }
    return {**body, "return_meta_info": True} if engine == "sglang" else body


def read_answer(engine: str, prompt: Prompt, answer: Mapping[str, Any], seconds: float) -> Answer:
    """The response to `chat_body`. Raises KeyError, IndexError for one that is no completion."""
    choice = answer["choices"][0]
    if engine == "sglang":
        asked, said = choice.get("prompt_token_ids"), choice.get("response_token_ids")
        steps = Steps.of_meta(choice.get("meta_info") or {})
    else:
        asked, said = answer.get("prompt_token_ids"), choice.get("token_ids")
        told = (answer.get("metrics") or {}).get("speculative_decoding") or {}
        steps = Steps.of_order(told.get("per_step_accepted") or ())
    return Answer(
        prompt=prompt,
        prompt_tokens=tuple(asked or ()),
        tokens=tuple(said or ()),
        text=str(choice["message"].get("content") or ""),
        finish_reason=str(choice.get("finish_reason")),
        seconds=seconds,
        steps=steps,
        generated=int((answer.get("usage") or {}).get("completion_tokens") or len(said or ())),
    )


def raw_request(engine: str, model: str, prompt: Prompt, max_new_tokens: int) -> Tuple[str, Dict[str, Any]]:
    """Path and body of a greedy request that goes on with the prompt's bare text, without the chat template."""
    if engine == "sglang":
        sampling = {"temperature": 0, "max_new_tokens": max_new_tokens}
        return "/generate", {"text": prompt.text, "sampling_params": sampling}
    body = {"model": model, "prompt": prompt.text, "temperature": 0, "max_tokens": max_new_tokens}
    return "/v1/completions", {**body, "return_token_ids": True}


def read_raw(engine: str, prompt: Prompt, answer: Mapping[str, Any], seconds: float) -> Answer:
    """The response to `raw_request`. Raises KeyError, IndexError for one that is no completion."""
    if engine == "sglang":
        meta, said = answer["meta_info"], answer.get("output_ids") or ()
        steps, text = Steps.of_meta(meta), answer["text"]
        reason, generated = (meta.get("finish_reason") or {}).get("type"), meta.get("completion_tokens")
    else:
        choice = answer["choices"][0]
        text, said, reason = choice["text"], choice.get("token_ids") or (), choice.get("finish_reason")
        told = (answer.get("metrics") or {}).get("speculative_decoding") or {}
        steps = Steps.of_order(told.get("per_step_accepted") or ())
        generated = (answer.get("usage") or {}).get("completion_tokens")
    count = int(generated or len(said))
    return Answer(prompt, (), tuple(said), str(text), str(reason), seconds, steps, count)


def counted_of(answers: Iterable[Answer], depth: int) -> Drafting:
    """The drafting of these answers by what each of them tells, ``depth`` draft tokens a step; by position only where
    all of them tell it."""
    steps = [answer.steps for answer in answers if answer.steps.count]
    places = range(depth) if steps and all(each.histogram for each in steps) else ()
    return Drafting(
        drafts=float(sum(each.count for each in steps)),
        drafted=float(depth * sum(each.count for each in steps)),
        accepted=float(sum(each.accepted for each in steps)),
        by_position=tuple(float(sum(sum(each.histogram[place + 1 :]) for each in steps)) for place in places),
    )


Ask = Callable[[Prompt], Union[Answer, Refusal]]


def ask_all(
    ask: Ask, prompts: Sequence[Prompt], concurrency: int, watch: Optional[Callable[[], None]] = None
) -> Iterator[Union[Answer, Refusal]]:
    """Answers as they come, ``concurrency`` requests in flight; what ``ask`` raises ends the whole.

    ``watch`` is called at least every `POLL` seconds and may raise to leave; requests in flight are then left to
    end with their engine.
    """
    pool = ThreadPoolExecutor(max_workers=concurrency)
    waiting = {pool.submit(ask, prompt) for prompt in prompts}
    try:
        while waiting:
            done, waiting = wait(waiting, timeout=POLL, return_when=FIRST_COMPLETED)
            if watch is not None:
                watch()
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
