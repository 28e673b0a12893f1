"""A gateway of a few lines, for tests of the link: greets, answers, echoes, follows one file. Runs on the "host"."""

import base64
import json
import os
import sys
import threading
import time

lock = threading.Lock()
followed = {}


def send(frame):
    with lock:
        sys.stdout.buffer.write(json.dumps(frame).encode() + b"\n")
        sys.stdout.buffer.flush()


def follow(sub, path, offset):
    while sub in followed:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(64 * 1024)
        if data:
            send({"sub": sub, "generation": "g", "offset": offset, "data": base64.b64encode(data).decode()})
            offset += len(data)
        else:
            time.sleep(0.01)


def answer(request):
    op = request["op"]
    if op == "hello":
        return {"protocol": 1, "python": sys.version, "psutil": "7", "wall": time.time(), "pid": os.getpid()}
    if op == "ping":
        return {"wall": time.time()}
    if op == "echo":
        return {"value": request["value"]}
    if op == "silent":
        time.sleep(3600)
    if op == "blob":
        return {"data": "x" * request["size"]}
    if op == "probe":
        return {"exists": os.path.exists(request["path"])}
    if op == "follow":
        followed[request["sub"]] = True
        thread = threading.Thread(target=follow, args=(request["sub"], request["path"], request["offset"]), daemon=True)
        thread.start()
        return {"generation": "g", "offset": request["offset"]}
    if op == "flood":
        for number in range(request["count"]):
            send({"sub": request["sub"], "number": number, "filler": "x" * request["size"]})
        return {}
    if op == "unfollow":
        followed.pop(request["sub"], None)
        return {}
    raise KeyError(op)


for line in sys.stdin.buffer:
    request = json.loads(line)
    try:
        send({"id": request["id"], "ok": True, "result": answer(request)})
    except Exception as problem:
        finding = {"code": "refused", "severity": "error", "message": repr(problem)}
        send({"id": request["id"], "ok": False, "finding": finding})
