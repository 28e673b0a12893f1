"""A stand-in for an engine's server, as a program: vLLM's flags, start marker, answers and counters, without a model.

An answer is made of the prompt's letters, so it is the same with and without a drafter. Variables change its ways:
`STAND_IN_DEATH` ends it at that request, `STAND_IN_NO_DRAFTS` lets it never draft, `STAND_IN_SECONDS` slows answers,
`STAND_IN_CUT` breaks a stream off, `STAND_IN_TOOK` is the method, depth and aux layers that it says it took,
`STAND_IN_STRANGER` (a request's number) lets another client be served beside that request, `STAND_IN_UNTRACED` lets it
write no trace when it is profiled, `STAND_IN_TORN` half of one, `STAND_IN_WAY_DEATH` is a method whose server dies at
its third request, `STAND_IN_RAW_ALIKE` lets raw text be drafted as well as chats, `STAND_IN_VERSION` is its build,
`STAND_IN_ROOM` its context in letters: longer prompts are refused, and an answer that does not fit is cut short.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("serve")
parser.add_argument("model")
parser.add_argument("--port", type=int)
parser.add_argument("--speculative-config", type=json.loads, default=None)
parser.add_argument("--per-request-spec-decode-metrics", default="none")
parser.add_argument("--no-enable-prefix-caching", action="store_true")
parser.add_argument("--profiler-config", type=json.loads, default=None)
options = parser.parse_args()

drafts = bool(options.speculative_config) and "STAND_IN_NO_DRAFTS" not in os.environ
depth = options.speculative_config["num_speculative_tokens"] if options.speculative_config else 0
told = options.per_request_spec_decode_metrics == "detailed"
room = int(os.environ.get("STAND_IN_ROOM", "1000"))
lock = threading.Lock()
accepted_steps: list[int] = []
asked = generated = 0


def page() -> str:
    total = f'vllm:generation_tokens_total{{engine="0"}} {generated}.0'
    if not options.speculative_config:
        return total + "\n"
    labels = 'engine="0",model_name="target"'
    lines = [
        f"vllm:spec_decode_num_drafts_total{{{labels}}} {len(accepted_steps)}.0",
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {depth * len(accepted_steps)}.0",
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {sum(accepted_steps)}.0",
    ]
    for place in range(depth):
        count = sum(accepted > place for accepted in accepted_steps)
        lines.append(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}.0')
    return "\n".join([*lines, total, ""])


def answer(text: str, length: int, *, raw: bool = False) -> dict[str, object]:
    global asked, generated
    length = min(length, room - len(text))
    tokens = [(ord(text[place % len(text)]) * 31 + place * place) % 997 for place in range(length)]
    steps = [token % (depth + 1) for token in tokens[: length // 2]] if drafts else []
    if raw and "STAND_IN_RAW_ALIKE" not in os.environ:
        steps = [0] * len(steps)
    with lock:
        asked += 1
        dying = asked == 3 and depth and options.speculative_config["method"] == os.environ.get("STAND_IN_WAY_DEATH")
        if dying or str(asked) == os.environ.get("STAND_IN_DEATH"):
            print("ERROR 11-29 17:00:00 [core.py:1] RuntimeError: stand-in died unexpectedly", flush=True)
            os._exit(1)
        times = 2 if str(asked) == os.environ.get("STAND_IN_STRANGER") else 1
        accepted_steps.extend(steps * times)
        generated += length * times
    time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0")))
    return {
        "prompt_token_ids": [1, 2, 3],
        "choices": [
            {
                "message": {"content": text[::-1]},
                "text": text[::-1],
                "token_ids": tokens,
                "finish_reason": "length",
            }
        ],
        "usage": {"completion_tokens": length},
        "metrics": {"speculative_decoding": {"per_step_accepted": steps}} if steps and told else None,
    }


def trace() -> bytes:
    """What its profiler would write: verify steps of four requests on a CPU, 2 ms with a drafter and 1 ms without."""
    events: list[dict[str, object]] = []

    def add(kind: str, name: str, begin: int, length: int) -> None:
        events.append({"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": length})

    for step in range(options.profiler_config["max_iterations"] + 1):
        at = step * (2000 if drafts else 1000)
        add("user_annotation", f"execute_context_0(0)_generation_4({4 * depth + 4})", at, 900)
        add("cpu_op", "vllm::unified_attention_with_output", at, 500)
        add("cpu_op", "aten::linear", at + 500, 400)
        if drafts:
            add("user_annotation", "gpu_model_runner: draft", at + 1000, 600)
            add("cpu_op", "aten::linear", at + 1000, 600)
    content = gzip.compress(json.dumps({"traceEvents": events}).encode())
    return content[: len(content) // 2] if "STAND_IN_TORN" in os.environ else content


def events(whole: dict[str, object]) -> list[dict[str, object]]:
    """An answer as vLLM streams it: the prompt's ids first, tokens two at a time, usage and drafting last."""
    choice = whole["choices"][0]
    told = [{"prompt_token_ids": whole["prompt_token_ids"], "choices": [{"delta": {"role": "assistant"}}]}]
    for start in range(0, len(choice["token_ids"]), 2):
        told.append({"choices": [{"delta": {"content": "ab"}, "token_ids": choice["token_ids"][start : start + 2]}]})
    told.append({"choices": [{"delta": {}, "finish_reason": choice["finish_reason"]}]})
    return [*told, {"choices": [], "usage": whole["usage"], "metrics": whole["metrics"]}]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {
            "/version": json.dumps({"version": os.environ.get("STAND_IN_VERSION", "stand-in")}),
            "/v1/models": '{"data": [{"id": "target", "max_model_len": 512}]}',
            "/metrics": page(),
        }
        self.send(200 if self.path in pages else 404, pages.get(self.path, "{}"))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/stop_profile" and "STAND_IN_UNTRACED" not in os.environ:
            Path(options.profiler_config["torch_profiler_dir"], "rank0.pt.trace.json.gz").write_bytes(trace())
        if self.path in ("/start_profile", "/stop_profile"):
            return self.send(200 if options.profiler_config else 404, "")
        raw = self.path == "/v1/completions"
        text = request["prompt"] if raw else request["messages"][0]["content"]
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self.send(401, '{"error": "Unauthorized"}')
        elif len(text) > room:
            self.send(400, '{"error": {"message": "maximum context length exceeded"}}')
        elif request.get("stream"):
            self.stream(answer(text, request["max_tokens"]), told=request.get("return_token_ids"))
        else:
            self.send(200, json.dumps(answer(text, request["max_tokens"], raw=raw)))

    def stream(self, whole: dict, told: bool) -> None:
        """The answer letter by letter, each as slow as `STAND_IN_SECONDS`, cut off behind `STAND_IN_CUT` letters; with
        its token ids, where they are to be ``told``."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if told:
            for event in events(whole):
                self.event(event)
            self.wfile.write(b"data: [DONE]\n\n")
            return
        letters = whole["choices"][0]["message"]["content"]
        for place, letter in enumerate(letters):
            if str(place) == os.environ.get("STAND_IN_CUT"):
                return
            self.event({"choices": [{"delta": {"content": letter}}]})
            time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0")))
        self.event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        self.event({"choices": [], "usage": whole["usage"]})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, content: dict) -> None:
        self.wfile.write(b"data: " + json.dumps(content).encode() + b"\n\n")

    def send(self, status: int, content: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64


server = Server(("127.0.0.1", options.port), Handler)
if options.speculative_config:
    told_method = options.speculative_config["method"]
    method, taken, layers = os.environ.get("STAND_IN_TOOK", f"{told_method} {depth} 2,6,9").split()
    print(
        f"INFO 11-29 17:00:00 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: speculative_config="
        f"SpeculativeConfig(method='{method}', model='/d', num_spec_tokens={taken}), tokenizer='t'\n"
        f"INFO 11-29 17:00:00 [gpu_model_runner.py:1] Using auxiliary layers from speculative config: ({layers})"
    )
print("INFO 11-29 17:00:00 [launcher.py:1] Application startup complete.", flush=True)
server.serve_forever()
