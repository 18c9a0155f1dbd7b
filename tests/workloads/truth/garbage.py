# Ranks with a core each, of which one has many objects and searches them for garbage in each step. Options and log are those
# of `truth`, see main.c; ranges are of roctx.
import argparse
import ctypes
import gc
import json
import os
import socket
import time
from array import array

import mpi4py

mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

OBJECTS = 800000

parser = argparse.ArgumentParser()
parser.add_argument("program")
for option in ("--log", "--plan"):
    parser.add_argument(option)
for option in ("--guilty", "--nodes", "--steps", "--seed"):
    parser.add_argument(option, type=int)
for option in ("--work-ms", "--excess", "--inner-ms", "--noise"):
    parser.add_argument(option, type=float)
options = parser.parse_args()
now = time.monotonic_ns
log, step_now, meetings = [], -1, 0
roctx = ctypes.CDLL(None)


def called(call, enter_ns, exit_ns, circle, number):
    waits_for = list(range(MPI.COMM_WORLD.size)) if exit_ns is not None else []
    log.append({"call": call, "step": step_now, "enter_ns": enter_ns, "exit_ns": exit_ns, "circle": circle,
                "number": number, "waits_for": waits_for})


def begin(name):
    began = now()
    roctx.roctxRangePushA(name.encode())
    return began


def end(name, began, planted_ns=0):
    roctx.roctxRangePop()
    log.append({"range": name, "step": step_now, "begin_ns": began, "end_ns": now(), "planted_ns": planted_ns})


def work(rounds):
    return sum(number * number for number in range(rounds))


def allreduce(value):
    global meetings
    mine, total = array("d", [value]), array("d", [0.0])
    enter_ns = now()
    comm.Allreduce([mine, MPI.DOUBLE], [total, MPI.DOUBLE])
    called("MPI_Allreduce", enter_ns, now(), "world", meetings)
    meetings += 1
    return total[0]


def rounds_in(wanted_ns):
    best = None
    for _ in range(20):
        before = now()
        work(20000)
        best = min(best or now() - before, now() - before)
    return 20000 * wanted_ns / best


start_ns = now()
MPI.Init()
initialised_ns = now()
comm = MPI.COMM_WORLD
called("MPI_Init", start_ns, initialised_ns, "init", 0)
os.sched_setaffinity(0, {comm.rank})
gc.disable()
rounds = int(allreduce(rounds_in(options.work_ms * 1e6)) / comm.size)
is_guilty = options.plan == "rank" and comm.rank == options.guilty
kept = [[number] for number in range(OBJECTS)] if is_guilty else []
allreduce(0)
for step in range(options.steps):
    step_now = step
    step_began = begin("step")
    began, pause_ns = begin("work"), 0
    work(rounds)
    if is_guilty:
        before = now()
        gc.collect()
        pause_ns = now() - before
    end("work", began, pause_ns)
    allreduce(step)
    end("step", step_began)
step_now = -1
enter_ns, ranks = now(), comm.size
rank = comm.rank
everyone = list(range(ranks))
MPI.Finalize()
log.append({"call": "MPI_Finalize", "step": -1, "enter_ns": enter_ns, "exit_ns": now(), "circle": "finalize", "number": 0,
            "waits_for": everyone})
with open(os.path.join(options.log, f"log-{rank:05}.jsonl"), "w") as file:
    header = {"rank": rank, "ranks": ranks, "host": socket.gethostname(), "program": options.program,
              "start_ns": start_ns, "end_ns": now()}
    print(json.dumps(header), file=file)
    sums = {}
    for entry in log:
        print(json.dumps(entry), file=file)
        if "range" in entry:
            total = sums.setdefault(entry["range"], {"label": entry["range"], "count": 0, "ns": 0, "planted_ns": 0})
            total["count"] += 1
            total["ns"] += entry["end_ns"] - entry["begin_ns"]
            total["planted_ns"] += entry["planted_ns"]
    for total in sums.values():
        print(json.dumps(total), file=file)
