"""A stand-in for SGLang's server, as a program: its flags, start marker, documented fields and gauges, without a model.

No SGLang runs here. An answer is made of the prompt's letters, the same with and without a drafter. `STAND_IN_OLD`
leaves out the histogram of accepted tokens and the drafting of a stream, as older releases do; `STAND_IN_STRANGER` lets
another client be served beside each request. Profiled, it writes what a GPU would have done in verify and draft passes.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--model-path")
parser.add_argument("--port", type=int)
parser.add_argument("--speculative-algorithm")
parser.add_argument("--speculative-draft-model-path")
parser.add_argument("--speculative-num-steps", type=int, default=0)
parser.add_argument("--speculative-eagle-topk", type=int)
parser.add_argument("--speculative-num-draft-tokens", type=int)
parser.add_argument("--speculative-draft-model-quantization")
parser.add_argument("--disable-radix-cache", action="store_true")
options = parser.parse_args()
key = Path(options.config).read_text().split('"')[1]
depth = options.speculative_num_steps
lock = threading.Lock()
accepted_steps: list[int] = []
generated = served = 0
LABELS = '{engine_type="unified",model_name="target"}'


def page() -> str:
    lines = [f"sglang:generation_tokens_total{LABELS} {generated}.0", f"sglang:num_requests_total{LABELS} {served}.0"]
    lines += [f"sglang:num_running_reqs{LABELS} 0.0", f"sglang:num_queue_reqs{LABELS} 0.0"]
    if accepted_steps:
        length = 1 + sum(accepted_steps) / len(accepted_steps)
        lines += [f"sglang:spec_verify_calls_total{LABELS} {len(accepted_steps)}.0"]
        lines += [f"sglang:spec_accept_length{LABELS} {length}", f"sglang:spec_num_steps{LABELS} {depth}.0"]
    return "\n".join([*lines, ""])


def server_info() -> str:
    state: dict[str, float] = {"effective_max_running_requests_per_dp": 48}
    if accepted_steps:
        state["avg_spec_accept_length"] = 1 + sum(accepted_steps) / len(accepted_steps)
    told = {
        "version": "0.5.14" if "STAND_IN_OLD" in os.environ else "0.5.23",
        "model_path": options.model_path,
        "served_model_name": "target",
        "speculative_algorithm": options.speculative_algorithm,
        "speculative_draft_model_path": options.speculative_draft_model_path,
        "speculative_num_steps": depth or None,
        "dtype": "float32",
        "internal_states": [state],
    }
    return json.dumps(told)


def answer(text: str, length: int, *, raw: bool = False) -> dict[str, object]:
    global generated, served
    tokens = [(ord(text[place % len(text)]) * 31 + place * place) % 997 for place in range(length)]
    steps = [token % (depth + 1) for token in tokens[: length // 2]] if depth else []
    if raw:
        steps = [0] * len(steps)
    meta: dict[str, object] = {"completion_tokens": length}
    if steps:
        meta |= {"spec_verify_ct": len(steps), "spec_num_correct_drafts": sum(steps)}
        meta |= {"spec_num_proposed_drafts": depth * len(steps)}
        if "STAND_IN_OLD" not in os.environ:
            meta["spec_correct_drafts_histogram"] = [steps.count(number) for number in range(max(steps) + 1)]
    times = 2 if "STAND_IN_STRANGER" in os.environ else 1
    with lock:
        accepted_steps.extend(steps * times)
        generated += length * times
        served += times
    if raw:
        meta["finish_reason"] = {"type": "length"}
        return {"text": text[::-1], "output_ids": tokens, "meta_info": meta}
    choice = {
        "message": {"content": text[::-1]},
        "finish_reason": "length",
        "prompt_token_ids": [1, 2, 3],
        "response_token_ids": tokens,
        "meta_info": meta,
    }
    return {"choices": [choice], "usage": {"completion_tokens": length}}


def events(whole: dict) -> list[dict[str, object]]:
    """An answer as it is streamed: tokens two at a time by the usage, ids and drafting in the extension of the end."""
    choice, told = whole["choices"][0], []
    for place in range(0, len(choice["response_token_ids"]), 2):
        told.append({"choices": [{"delta": {"content": "ab"}}], "usage": {"completion_tokens": place + 2}})
    told.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
    extension = {"input_ids": choice["prompt_token_ids"], "output_ids": [choice["response_token_ids"]]}
    if depth:
        extension["spec_tokens_details"] = choice["meta_info"]
    if "STAND_IN_OLD" not in os.environ:
        told.append({"choices": [], "sglext": extension})
    return [*told, {"choices": [], "usage": whole["usage"]}]


def trace(steps: int) -> str:
    """Steps of 200 us on one device: a target's pass, and with a drafter three of its passes."""
    events: list[dict[str, object]] = []

    def add(kind: str, name: str, begin: int, length: int) -> None:
        events.append({"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 7, "ts": begin, "dur": length})

    for at in range(0, 200 * steps, 200):
        passes = [("VERIFY" if depth else "DECODE", at, 80)]
        passes += [("DRAFT", at + 100 + 30 * number, 20) for number in range(min(depth, 3))]
        for name, begin, length in passes:
            add("gpu_user_annotation", f"step[{name} bs=4]", begin, length)
            add("kernel", "nvjet_tst_128x64_64x8_2x1_v_bz_TNT", begin, length)
    return json.dumps({"traceEvents": events})


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {"/server_info": server_info(), "/v1/models": '{"data": [{"id": "target"}]}', "/metrics": page()}
        self.send(200 if self.path in pages else 404, pages.get(self.path, "{}"))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {key}":
            self.send(401, '{"error": "Unauthorized"}')
            return
        if self.path == "/start_profile":
            Path(request["output_dir"], "1.0-TP-0.trace.json").write_text(trace(request["num_steps"]))
            self.send(200, "Start profiling.")
            return
        if self.path == "/generate":
            found = answer(request["text"], request["sampling_params"]["max_new_tokens"], raw=True)
            self.send(200, json.dumps(found))
            return
        if request.get("stream") and (request.get("return_token_ids") or request.get("return_meta_info")):
            self.send(400, '{"message": "return_token_ids is not supported with streaming"}')
            return
        found = answer(request["messages"][0]["content"], request["max_tokens"])
        if request.get("stream"):
            self.stream(events(found))
            return
        if not request.get("return_meta_info"):
            del found["choices"][0]["meta_info"]
        self.send(200, json.dumps(found))

    def stream(self, told: list[dict[str, object]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        for event in told:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def send(self, status: int, content: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
if depth:
    print(
        f"[2026-02-03 14:00:31] server_args=ServerArgs(speculative_algorithm={options.speculative_algorithm!r}, "
        f"speculative_num_steps={depth}, speculative_eagle_topk=1)",
        flush=True,
    )
print("[2026-02-03 14:00:32] The server is fired up and ready to roll!", flush=True)
server.serve_forever()
