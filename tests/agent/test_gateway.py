"""The frame protocol: what a gateway answers, and when it ends."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time

import pytest

from eagle3_backend.agent.frames import MAX_FRAME, Splitter, encode


def test_hello_names_host_workspace_and_versions(gateway, workspace):
    hello = gateway.request("hello")
    assert hello["protocol"] == 1
    assert hello["workspace"] == str(workspace)
    assert len(hello["workspace_id"]) == 32
    assert hello["workspace_id"] == json.loads((workspace / ".eagle3" / "workspace.json").read_text())["id"]
    assert hello["psutil"] and hello["boot_id"] and hello["host_name"] and hello["pid_namespace"]


def test_two_gateways_agree_on_the_workspace(connect):
    clients = [connect(), connect()]
    assert len({client.request("hello")["workspace_id"] for client in clients}) == 1


def test_hello_needs_nothing_beyond_the_standard_library():
    code = "import sys, eagle3_backend.agent.gateway as g; sys.exit('psutil' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_workspace_that_cannot_be_written_still_answers_hello(connect, workspace):
    workspace.parent.mkdir(exist_ok=True)
    workspace.write_text("a file")
    client = connect()
    assert client.request("hello")["workspace_id"] is None
    checks = {check["check"]: check["level"] for check in client.request("doctor")["checks"]}
    assert checks["workspace"] == "error" and checks["python"] == "ok"


@pytest.mark.parametrize(
    "line",
    [b"not json", b"[1]", b'{"op": "ping"}', b'{"id": 1}', b'{"id": "1", "op": "ping"}', b"\xff\xfe", b"[" * 9999],
)
def test_a_malformed_frame_is_answered_and_the_next_one_works(idle_gateway, line):
    idle_gateway.send(line + b"\n")
    frame = idle_gateway.answer_without_id()
    assert (frame["ok"], frame["id"], frame["finding"]["code"]) == (False, None, "frame_malformed")
    assert idle_gateway.request("ping")["wall"] > 0


def test_an_oversized_frame_is_dropped_and_the_next_one_works(idle_gateway):
    idle_gateway.send(b'{"id": 1, "op": "ping", "x": "' + b"y" * (3 << 20) + b'"}\n')
    assert idle_gateway.answer_without_id()["finding"]["code"] == "frame_too_large"
    assert idle_gateway.request("ping")["wall"] > 0


def test_an_unknown_operation_names_the_known_ones(idle_gateway, refused):
    with pytest.raises(refused) as problem:
        idle_gateway.request("reboot")
    assert problem.value.code == "operation_unknown"
    assert "follow" in problem.value.finding["expected"]


@pytest.mark.parametrize(
    ("op", "fields", "path"),
    [
        ("stop", {"run": "a"}, "attempt"),
        ("stop", {"run": "a", "attempt": True}, "attempt"),
        ("start", {}, "spec"),
        ("follow", {"run": 3, "attempt": 1}, "run"),
        ("artifacts", {"paths": "x"}, "paths"),
        ("put", {"name": "uploads/x", "data": "?", "offset": 0}, "data"),
    ],
)
def test_a_wrong_field_is_named(idle_gateway, refused, op, fields, path):
    with pytest.raises(refused) as problem:
        idle_gateway.request(op, **fields)
    assert (problem.value.code, problem.value.finding["path"]) == ("request_invalid", path)


def test_the_gateway_ends_with_its_input(connect):
    client = connect()
    client.request("ping")
    assert client.close() == 0


def test_the_gateway_ends_when_no_ping_comes(connect):
    client = connect(ping_interval=0.2)
    client.request("ping")
    assert client.process.wait(timeout=20) == 0


def test_the_gateway_stays_while_pings_come(connect):
    client = connect(ping_interval=0.5)
    for _ in range(10):
        client.request("ping")
        time.sleep(0.25)
    assert client.process.poll() is None


def test_artifacts_tell_whole_from_broken(gateway, workspace):
    whole = workspace / "c" / "train" / "f"
    whole.mkdir(parents=True)
    (whole / "x").write_bytes(b"12345")
    manifest = {"kind": "checkpoint", "fingerprint": "f", "files": [{"path": "x", "bytes": 5, "sha256": ""}]}
    (whole / "manifest.json").write_text(json.dumps(manifest))
    ask = {"paths": [str(whole), str(workspace / "none")]}
    found = gateway.request("artifacts", **ask)["artifacts"]
    assert found == {
        str(whole): {"kind": "checkpoint", "fingerprint": "f", "bytes": 5},
        str(workspace / "none"): None,
    }
    (whole / "x").write_bytes(b"1234")
    assert gateway.request("artifacts", **ask)["artifacts"][str(whole)] is None


def _put(gateway, name, data, digest=None, step=1000):
    for start in range(0, len(data), step):
        piece = base64.b64encode(data[start : start + step]).decode()
        last = start + step >= len(data)
        sha256 = digest or hashlib.sha256(data).hexdigest()
        gateway.request("put", name=name, data=piece, offset=start, last=last, sha256=sha256)


def test_a_file_arrives_in_pieces_and_is_checked(gateway, workspace, refused):
    data = bytes(range(256)) * 20
    _put(gateway, "uploads/abc/prompts.jsonl", data)
    assert (workspace / ".eagle3/uploads/abc/prompts.jsonl").read_bytes() == data
    with pytest.raises(refused) as problem:
        _put(gateway, "payload/x.zip", data, digest="0" * 64)
    assert problem.value.code == "upload_corrupt"
    assert list((workspace / ".eagle3/payload").iterdir()) == []


@pytest.mark.parametrize("name", ["runs/x", "uploads/../runs/x", "/etc/x", "uploads", "payload/../../x"])
def test_a_file_is_put_nowhere_else(idle_gateway, refused, name):
    with pytest.raises(refused):
        idle_gateway.request("put", name=name, data="", offset=0)


def test_probes_see_room_ports_and_paths(idle_gateway, workspace, tmp_path):
    (mount,) = idle_gateway.request("probe", what="disk", paths=[str(workspace / "not" / "yet")])["mounts"]
    assert str(workspace).startswith(mount["mount"]) and 0 < mount["free_bytes"] <= mount["total_bytes"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = idle_gateway.request("probe", what="port", port=port)
        assert not taken["free"] and f"pid {os.getpid()}" in taken["owner"]
        checks = {check["check"]: check for check in idle_gateway.request("doctor", port=port)["checks"]}
        assert checks["port"]["finding"]["code"] == "port_in_use"
    assert idle_gateway.request("probe", what="port", port=port) == {"free": True, "owner": None}
    assert idle_gateway.request("probe", what="path", path=sys.executable)["executable"]
    assert idle_gateway.request("probe", what="path", path=str(tmp_path))["is_dir"]
    assert not idle_gateway.request("probe", what="path", path=str(tmp_path / "none"))["exists"]
    (tmp_path / "f").write_bytes(b"x")
    assert (
        idle_gateway.request("probe", what="file", path=str(tmp_path / "f"))["sha256"]
        == hashlib.sha256(b"x").hexdigest()
    )


def test_scrape_reads_a_page_of_the_loopback(idle_gateway, refused):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"vllm:x 1 {self.path}".encode())

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    assert idle_gateway.request("scrape", port=port, path="/metrics") == {"status": 200, "text": "vllm:x 1 /metrics"}
    server.shutdown()
    server.server_close()
    with pytest.raises(refused) as problem:
        idle_gateway.request("scrape", port=port, path="/metrics")
    assert problem.value.code == "endpoint_silent"


def test_an_endpoint_is_handed_out_while_the_attempt_is_active(gateway, stages, refused, until):
    code = '(here / \'endpoint.json\').write_text(\'{"port": 5, "api_key": "k"}\')\ntime.sleep(600)'
    spec = stages.spec("a", code)
    gateway.start(spec)
    until(lambda: (stages.directory(spec) / "endpoint.json").exists())
    assert gateway.request("endpoint", run=spec["run"], attempt=1) == {"port": 5, "api_key": "k"}
    gateway.request("stop", run=spec["run"], attempt=1)
    gateway.wait_for(spec["run"], "stopped")
    with pytest.raises(refused) as problem:
        gateway.request("endpoint", run=spec["run"], attempt=1)
    assert problem.value.code == "endpoint_absent"


def test_telemetry_is_pushed_while_it_is_watched(idle_gateway):
    pushes = idle_gateway.pushes.setdefault(3, queue.Queue())
    idle_gateway.request("watch", sub=3, interval=0.2)
    first, second = (pushes.get(timeout=20)["telemetry"] for _ in range(2))
    assert second["wall"] > first["wall"]
    assert 0 < second["memory_used"] < second["memory_total"]
    assert 0 < second["disk_free"] < second["disk_total"]


def test_a_frame_is_never_longer_than_the_limit():
    frame = json.loads(encode({"id": 7, "ok": True, "result": {"x": "y" * MAX_FRAME}}))
    assert (frame["id"], frame["ok"], frame["finding"]["code"]) == (7, False, "answer_too_large")


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_frames_are_the_same_however_the_bytes_are_cut(step):
    data = b"one\ntwo\n\nthree\nrest"
    splitter = Splitter()
    lines = [line for at in range(0, len(data), step) for line in splitter.feed(data[at : at + step])]
    assert lines == [b"one", b"two", b"", b"three"]


def test_a_splitter_holds_no_more_than_a_frame():
    splitter = Splitter()
    found = [line for _ in range(64) for line in splitter.feed(b"x" * (1 << 16))]
    assert found == [None]
    assert splitter.feed(b"tail of it\nnext\n") == [b"next"]


def test_processes_are_told_with_owner_and_attempt(gateway, stages):
    # As engines do: a worker without the environment that it inherited.
    worker = "import subprocess; subprocess.Popen(['sleep', '600'], env={}); print('up', flush=True); time.sleep(600)"
    spec = stages.spec("a", worker, stage="train")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "running")
    deadline = time.monotonic() + 30
    listed = gateway.request("processes")["processes"]
    # A program that has just begun holds no memory for a moment.
    while not any(entry["command"] == "sleep 600" and entry["run"] and entry["memory"] for entry in listed):
        assert time.monotonic() < deadline
        listed = gateway.request("processes")["processes"]
    ours = [entry for entry in listed if entry["run"] == spec["run"]]
    assert ours and all(entry["attempt"] == 1 and entry["memory"] > 0 and entry["user"] for entry in ours)
    gateway.request("stop", run=spec["run"], attempt=1)
    gateway.wait_for(spec["run"], "stopped")
    listed = gateway.request("processes")["processes"]
    assert [entry for entry in listed if entry["pid"] in {each["pid"] for each in ours}] == []
