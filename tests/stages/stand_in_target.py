"""A program that stands in for vLLM: start lines, chat and completions with exact ids, and captures under a lock.

Token ids are the bytes of the text. `WAYS` (words with commas) changes its ways: `die` ends with an out-of-memory line,
`worker` ends at the third answer, `silent` never says that it is ready, `stubborn` ignores SIGTERM and has a child that
does too, `taken` reports a taken port, `noise` prints bytes that are no text and a very long line, `cut` cuts answers
off, `empty` answers nothing, `think` reasons in a field of its own, `slow` takes its time, `zero` captures zeros,
`tell` prints its key, `foreign` serves another model, `mute` answers after 20 s.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WAYS = set(os.environ.get("WAYS", "").split(","))
HIDDEN = 8
CONTEXT = 400

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--port", type=int)
parser.add_argument("--speculative-config", type=json.loads)
parser.add_argument("--kv-transfer-config", type=json.loads)
parser.add_argument("--no-enable-prefix-caching", action="store_true")
parser.add_argument("--config", type=Path)
options = parser.parse_args()
KEY = options.config.read_text().split('"')[1] if options.config else os.environ["VLLM_API_KEY"]
if options.speculative_config:
    LAYERS = options.speculative_config["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"]
    DIRECTORY = Path(options.kv_transfer_config["kv_connector_extra_config"]["shared_storage_path"])
lock = threading.Lock()
asked = 0


def capture(ids: list[int]) -> str:
    """Write states that can be told apart: token id and layer stand in each vector."""
    path = DIRECTORY / f"{threading.get_ident()}-{time.monotonic_ns()}.safetensors"
    values = [
        float(token) if place == 0 else 1.0 + layer for token in ids for layer in LAYERS for place in range(HIDDEN)
    ]
    # The upper half of a float32 is its bfloat16.
    states = b"".join(struct.pack("<f", 0.0 if "zero" in WAYS else value)[2:] for value in values)
    tokens = struct.pack(f"<{len(ids)}q", *ids)
    shape = [len(ids), len(LAYERS), HIDDEN]
    header = {
        "hidden_states": {"dtype": "BF16", "shape": shape, "data_offsets": [0, len(states)]},
        "token_ids": {"dtype": "I64", "shape": [len(ids)], "data_offsets": [len(states), len(states) + len(tokens)]},
    }
    text = json.dumps(header).encode()

    def write() -> None:
        with open(f"{path}.lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            ready.set()
            time.sleep(0.05)
            path.write_bytes(struct.pack("<Q", len(text)) + text + states + tokens)

    ready = threading.Event()
    threading.Thread(target=write).start()
    ready.wait()
    return str(path)


def chat(request: dict) -> dict:
    text = "".join(f"{m['role']}:{m.get('reasoning_content', '')}{m['content']}\n" for m in request["messages"])
    prompt = [*([7, 7] if "begins" in WAYS else []), *f"{text}assistant:".encode()]
    words = "" if "empty" in WAYS else request["messages"][-1]["content"][::-1]
    ids = [*words.encode()[: request["max_tokens"] - 1], 0]
    message = {"role": "assistant", "content": words}
    if "think" in WAYS:
        message["reasoning_content"] = "hm"
    return {
        "prompt_token_ids": prompt,
        "choices": [{"message": message, "token_ids": ids, "finish_reason": "length" if "cut" in WAYS else "stop"}],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": max(len(ids), request.get("min_tokens", 0))},
    }


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send(200, {"data": [{"id": "theirs" if "foreign" in WAYS else "target"}]})

    def do_POST(self) -> None:
        global asked
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        with lock:
            asked += 1
            if asked > 3 and "worker" in WAYS:
                print("(EngineCore pid=1) ERROR 1 [x.py:1] Worker proc VllmWorker-0 died unexpectedly", flush=True)
                os._exit(1)
        if "mute" in WAYS:
            time.sleep(20)
        if "slow" in WAYS and asked > 1:
            time.sleep(1)
        if "prompt" in request:
            return self.send(200, {"kv_transfer_params": {"hidden_states_path": capture(request["prompt"])}})
        answer = chat(request)
        prompt, ids = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        if len(prompt) + request["max_tokens"] > CONTEXT:
            return self.send(400, {"error": {"message": f"This model's maximum context length is {CONTEXT} tokens."}})
        if request.get("kv_transfer_params"):
            answer["kv_transfer_params"] = {"hidden_states_path": capture((prompt + ids)[:-1])}
        self.send(200, answer)

    def send(self, status: int, content: dict) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if "stubborn" in WAYS:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("INFO 11-29 17:00:00 [core.py:1] Starting to load model x", flush=True)
if "tell" in WAYS:
    print(f"server_args={{'api_key': '{KEY}'}}", flush=True)
if "noise" in WAYS:
    sys.stdout.buffer.write(b"\xff\xfe\x1b[31m no text \r 50%\r" + b"x" * 10_000_000 + b"\n")
    sys.stdout.buffer.flush()
if "die" in WAYS:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
if "taken" in WAYS:
    print("ERROR: [Errno 98] error while attempting to bind on address: address already in use", flush=True)
    time.sleep(600)
server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
if "silent" not in WAYS:
    print("INFO 11-29 17:00:00 [launcher.py:1] Application startup complete.", flush=True)
server.serve_forever()
