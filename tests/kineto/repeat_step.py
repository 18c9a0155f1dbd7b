"""Makes the traces of a training job of four ranks from one real step of the PyTorch profiler.

    repeat_step.py TRACE FAULT RANK FOLDER

Each rank repeats the step 30 times: it loads a batch, launches the kernels of the trace, a reduction of all ranks, and
waits for its GPU. FAULT is none, launches (the rank loads for 6 % of the step longer) or kernels (its kernels take 40
times as long). The GPU works off its launches in order: a kernel starts after its launch, as long after it as in the
trace, and not before the one before it has ended.
"""

import copy
import gzip
import json
import pathlib
import random
import sys

RANKS = 4
STEPS = 30
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")


def read_step(path):
    """Returns the first step of a trace: its host events, its GPU events, and its length in us."""
    opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        trace = json.load(file)
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X" and "ts" in event]
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    begin = min(event["ts"] for event in steps)
    end = max(event["ts"] + event["dur"] for event in steps)
    inside = [event for event in events if begin <= event["ts"] and event["ts"] + event["dur"] <= end]
    inside = [event for event in inside if event not in steps]
    # Calls that wait for the GPU in the trace would wait for other times here.
    host = [event for event in inside if event.get("cat") not in KERNELS and "Synchronize" not in event["name"]]
    gpu = [event for event in inside if event.get("cat") in KERNELS]
    return trace, host, sorted(gpu, key=lambda event: event["ts"]), begin, end - begin


def span(category, name, place, start, duration, args=None):
    pid, tid = place
    times = {"ts": start, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args or {}}


def shifted(event, offset, step):
    found = copy.deepcopy(event)
    found["ts"] += offset
    for key in ("correlation", "External id"):
        if key in found.get("args", {}):
            found["args"][key] += step * 1_000_000
    return found


def main():
    trace, host, gpu, begin, length = read_step(pathlib.Path(sys.argv[1]))
    fault, slow, folder = sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4])
    calls = [event for event in host if event.get("cat") in RUNTIME]
    launches = {event["args"]["correlation"]: event["ts"] for event in calls if "correlation" in event["args"]}
    thread = (calls[0]["pid"], calls[0]["tid"])
    device = gpu[0]["args"]["device"]
    chance = [random.Random(rank) for rank in range(RANKS)]
    events = [[] for _ in range(RANKS)]
    now = begin
    for step in range(STEPS):
        entered = []
        for rank in range(RANKS):
            load = 0.02 * length + abs(chance[rank].gauss(0, 0.01)) * length
            if fault == "launches" and rank == slow:
                load += 0.06 * length
            out = events[rank]
            out.append(span("user_annotation", "load batch", thread, now + 1, load))
            offset = now - begin + load + 2
            out.extend(shifted(event, offset, step) for event in host)
            idle_from = now
            for event in gpu:
                kernel = shifted(event, offset, step)
                launched = launches.get(event["args"].get("correlation"), event["ts"])
                kernel["ts"] = max(offset + launched + max(event["ts"] - launched, 5), idle_from + 1)
                if fault == "kernels" and rank == slow and event["cat"] == "kernel":
                    kernel["dur"] *= 40
                idle_from = kernel["ts"] + kernel["dur"]
                out.append(kernel)
            launched = offset + max(event["ts"] + event["dur"] for event in host) + 2
            entered.append((launched, max(launched + 8, idle_from + 3)))
        done = max(start for _, start in entered) + 50
        for rank, (launched, start) in enumerate(entered):
            number = 900_000_000 + step * 10
            args = {
                "correlation": number, "device": device, "stream": 13, "Collective name": "allreduce",
                "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": RANKS, "dtype": "Float",
                "Process Group Name": "0", "Process Group Ranks": str(list(range(RANKS))), "Seq": step,
            }
            launch = span("cuda_runtime", "hipExtModuleLaunchKernel", thread, launched, 5, {"correlation": number})
            wait = {"correlation": number + 1}
            events[rank] += [
                launch,
                span("kernel", "ncclDevKernel_Generic_4", (gpu[0]["pid"], 13), start, done - start, args),
                span("cuda_runtime", "hipDeviceSynchronize", thread, launched + 6, done - launched, wait),
                span("user_annotation", f"ProfilerStep#{step}", thread, now, done + 10 - now),
            ]
        now = done + 12
    folder.mkdir()
    for rank, of_rank in enumerate(events):
        made = {key: value for key, value in trace.items() if key != "traceEvents"}
        made["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": RANKS}
        made["traceEvents"] = of_rank
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(made))


main()
