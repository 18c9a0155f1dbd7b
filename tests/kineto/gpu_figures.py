"""Computes the figures of `rpd-report gpu` from traces of the PyTorch profiler, by the definitions in docs/GPU.md.

    python3 gpu_figures.py TRACE.json[.gz]     prints a JSON object: GPUs, and classes of kernels
    python3 gpu_figures.py TRACE TRACE...      prints a JSON list: collectives of the ranks, matched by their numbers

It reads the JSON into a tree and compares every interval with every other, so it shares nothing with rpd.
"""

import gzip
import json
import sys
from decimal import Decimal

WORDS = [
    ("communication", ["nccl", "rccl", "cross_device_reduce"]),
    ("memory", ["memcpy", "memset", "copybuffer", "fillbuffer"]),
    ("attention", ["attention", "attn", "fmha", "flash"]),
    ("convolution", ["conv", "winograd", "miopen"]),
    ("gemm", ["gemm", "cijk_", "matmul", "cutlass", "gemv"]),
    ("normalization", ["norm"]),
    ("reduction", ["reduce", "softmax"]),
    ("elementwise", ["elementwise", "vectorized"]),
]
KERNELS = {"kernel", "gpu_memset", "Kernel", "Memset", "memset"}
COPIES = {"gpu_memcpy", "Memcpy", "memcpy"}


def class_of(name):
    for kernel_class, words in WORDS:
        if any(word in name.lower() for word in words):
            return kernel_class
    return "other"


def covered(points, intervals):
    """Returns for each elementary interval between neighbouring points whether any of the intervals covers it."""
    return [any(start <= low and high <= end for start, end in intervals) for low, high in points]


def figures(work):
    starts = [item["start"] for item in work]
    ends = [item["end"] for item in work]
    marks = sorted(set(starts + ends))
    points = list(zip(marks, marks[1:]))

    def of(classes):
        return covered(points, [(i["start"], i["end"]) for i in work if i["class"] in classes])

    names = {kernel_class for kernel_class, _ in WORDS} | {"other"}
    compute = of(names - {"communication", "memory"})
    communication = of({"communication"})
    memory = of({"memory"})
    size = [high - low for low, high in points]
    total = lambda choose: sum(s for i, s in enumerate(size) if choose(i))
    idle = [not (compute[i] or communication[i] or memory[i]) for i in range(len(points))]
    parts = {"late_launch_ns": 0, "launched_before_ns": 0, "unknown_launch_ns": 0}
    for i, (low, high) in enumerate(points):
        if idle[i]:
            # Marks of work without a duration divide an idle time.
            first = i
            while first > 0 and idle[first - 1]:
                first -= 1
            last = i
            while last + 1 < len(points) and idle[last + 1]:
                last += 1
            begun = [w["launch"][1] for w in work if w["start"] == points[last][1] and w["launch"]]
            key = "unknown_launch_ns"
            if begun:
                key = "late_launch_ns" if min(begun) > points[first][0] else "launched_before_ns"
            parts[key] += high - low
    delays = [max(0, w["start"] - w["launch"][1]) for w in work if w["launch"]]
    exposed = total(lambda i: communication[i] and not compute[i])
    all_communication = total(lambda i: communication[i])
    return {
        "kernels": sum(w["kernel"] for w in work),
        "copies": sum(not w["kernel"] for w in work),
        "length_ns": max(ends) - min(starts),
        "compute_ns": total(lambda i: compute[i]),
        "communication_ns": all_communication,
        "exposed_ns": exposed,
        "memory_ns": total(lambda i: memory[i] and not compute[i] and not communication[i]),
        "idle_ns": total(lambda i: idle[i]),
        **parts,
        "launch_delay_p50_ns": percentile(delays, 50) if delays else None,
        "launch_delay_p95_ns": percentile(delays, 95) if delays else None,
        "short_kernels": sum(
            bool(w["kernel"] and w["launch"] and w["end"] - w["start"] < w["launch"][1] - w["launch"][0])
            and sum(other["launch"] == w["launch"] for other in work) == 1
            for w in work
        ),
    }


def read(path):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as file:
        return json.load(file, parse_float=Decimal)


def ns(value):
    return int(Decimal(value) * 1000)


def percentile(values, p):
    return sorted(values)[-(-len(values) * p // 100) - 1]


def collectives(traces):
    """Compares the kernels with the same group and number in all ranks."""
    size_of = {"Float": 4, "BFloat16": 2, "Long": 8}
    found, lines = {}, {}
    for trace in traces:
        base = trace["baseTimeNanoseconds"]
        for event in trace["traceEvents"]:
            if event.get("cat") != "kernel" or "Collective name" not in event["args"]:
                continue
            args = event["args"]
            ranks = int(args["Group size"])
            sent = int(args["In msg nelems"]) * size_of[args["dtype"]]
            name = args["Collective name"]
            bytes_ = sent * ranks if name == "_allgather_base" else sent
            line = (args["Process Group Name"], ranks, name, bytes_)
            lines.setdefault(line, []).append(event)
            start = base + ns(event["ts"])
            found.setdefault((line[0], int(args["Seq"])), []).append((line, start, ns(event["dur"])))
    result = []
    for line, events in lines.items():
        group, ranks, name, bytes_ = line
        own = [k for k in found.values() if len(k) == ranks and all(one[0] == line for one in k)]
        latencies = [min(duration for _, _, duration in kernels) for kernels in own]
        skews = [max(s for _, s, _ in k) - min(s for _, s, _ in k) for k in own]
        share = (ranks - 1) / ranks
        factor = {"allreduce": 2 * share, "broadcast": 1}.get(name, share)
        speed = bytes_ / percentile(latencies, 50) * 1e9 if latencies else None
        result.append({
            "communicator": group, "ranks": ranks, "function": name, "bytes": bytes_, "kernels": len(events),
            "matched": len(own),
            "latency_p50_ns": percentile(latencies, 50) if own else None,
            "latency_p95_ns": percentile(latencies, 95) if own else None,
            "skew_p50_ns": percentile(skews, 50) if own else None,
            "skew_p95_ns": percentile(skews, 95) if own else None,
            "algorithm_bytes_per_s": speed, "bus_bytes_per_s": speed and speed * factor,
        })
    return result


def breakdown(trace):
    calls, work = {}, {}
    for event in trace["traceEvents"]:
        if event.get("ph") != "X":
            continue
        args = event.get("args", {})
        start = ns(event["ts"])
        span = {"start": start, "end": start + ns(event["dur"]), "correlation": int(args.get("correlation", 0))}
        category = event.get("cat")
        if category not in KERNELS | COPIES:
            calls.setdefault(span["correlation"], []).append(span)
            continue
        span["kernel"] = category in KERNELS
        span["class"] = class_of(event["name"]) if span["kernel"] else "memory"
        work.setdefault(int(args.get("device", event["pid"])), []).append(span)
    classes = {}
    for item in (item for of_gpu in work.values() for item in of_gpu):
        before = [c for c in calls.get(item["correlation"], []) if c["start"] <= item["start"]]
        launch = max(before, key=lambda call: call["start"]) if item["correlation"] > 0 and before else None
        item["launch"] = launch and (launch["start"], launch["end"])
        if item["kernel"]:
            known = classes.setdefault(item["class"], {"kernels": 0, "total_ns": 0})
            known["kernels"] += 1
            known["total_ns"] += item["end"] - item["start"]
    return {"gpus": {str(gpu): figures(of_gpu) for gpu, of_gpu in work.items()}, "classes": classes}


paths = sys.argv[1:]
print(json.dumps(breakdown(read(paths[0])) if len(paths) == 1 else collectives([read(path) for path in paths])))
