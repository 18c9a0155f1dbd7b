#!/usr/bin/env python3
"""Stands for AMD's profilers, of which none runs without a GPU: it is called by their names, checks that it is called
as their documents say, starts the program, and leaves a real file of the format.

STAND_IN says what goes wrong: no-help, help-fails: when it is asked for its options; fails, hangs, silent, cut, forks, child-only; deaf: hangs, with a child, and SIGTERM ends it with a
status; crashes-behind, hangs-behind: when the program has ended; leaves: while it runs; passes: it runs it twice; tables: it
leaves tables, too; tree: its database has several processes; nodes: of several nodes; about: it leaves JSON about itself, and a torn database.
STAND_IN_AGE=old is a release of ROCm 6.
"""
import json
import os
import re
import signal
import sqlite3
import sys
import time

NAME = os.path.basename(sys.argv[0])
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
WRONG = os.environ.get("STAND_IN", "")
OLD = os.environ.get("STAND_IN_AGE") == "old"
# Of a cut file, the schema is at the beginning.
CALLS = 20000 if WRONG == "cut" else 50
KERNELS = 20
# What a release can be asked to trace.
OPTIONS = ["runtime", "sys", "hip", "hip-runtime", "kernel", "memory-copy", "marker", "rccl", "scratch-memory"] + ([] if OLD else ["memory-allocation", "kfd"])


def refuse(why):
    print(NAME + ": " + why, file=sys.stderr)
    sys.exit(2)


def note(kind, words):
    with open(os.path.join(HERE, "calls.jsonl"), "a") as calls:
        variables = {name: value for name, value in os.environ.items() if name.startswith(("ROCPROFSYS_", "RPDT_", "HSA_", "ROCM_DEBUG"))}
        calls.write(json.dumps({"name": NAME, "kind": kind, "words": words, "variables": variables}) + "\n")


def database(path, pid):
    """Of one process; of three for a tree, two of which share a set of tables."""
    schema = open(os.path.join(HERE, "schema.sql")).read()
    uuid = open(os.path.join(HERE, "uuid")).read().strip()
    is_tree = WRONG in ("tree", "nodes")
    db = sqlite3.connect(path)
    db.executescript("PRAGMA foreign_keys = OFF;" + schema)
    fill(db, uuid, [pid, pid + 1] if is_tree else [pid], "elsewhere")
    if is_tree:
        # The views are there once.
        other = uuid[:-1] + "8"
        for table in re.findall("CREATE TABLE[^;]*;", schema):
            db.execute(table.replace(uuid, other).replace(guid_of(uuid), guid_of(other)))
        fill(db, other, [pid + 2], "elsewhere" if WRONG == "tree" else "far")
    else:
        kernels(db, uuid, pid)
    db.commit()
    db.close()


def guid_of(uuid):
    return uuid[1:].replace("_", "-")


def fill(db, uuid, pids, host):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for tag, value in [("schema_version", "3.0.0"), ("uuid", uuid), ("guid", guid_of(uuid))]:
        db.execute(f'INSERT INTO "rocpd_metadata{uuid}" (tag, value) VALUES (?, ?)', (tag, value))
    db.execute(f'INSERT INTO "rocpd_string{uuid}" (id, string) VALUES (1, \'HIP_RUNTIME_API\'), (2, \'hipLaunchKernel\')')
    db.execute(f'INSERT INTO "rocpd_info_node{uuid}" (id, hash, machine_id, hostname) VALUES (77, 77, \'other\', ?)', (host,))
    command = "app --token=hunter2"
    environment = json.dumps({"MY_TOKEN": "hunter2"})
    for number, pid in enumerate(pids):
        first = number * CALLS
        db.execute(f'INSERT INTO "rocpd_info_process{uuid}" (id, nid, ppid, pid, command, start, environment) VALUES (?, 77, 1, ?, ?, ?, ?)', (pid, pid, command, now - 10**9, environment))
        db.execute(f'INSERT INTO "rocpd_info_thread{uuid}" (id, nid, ppid, pid, tid) VALUES (?, 77, 1, ?, ?)', (pid, pid, pid))
        for i in range(CALLS):
            db.execute(f'INSERT INTO "rocpd_event{uuid}" (id, category_id, stack_id) VALUES (?, 1, ?)', (first + i + 1, i + 1))
            row = (3 * (first + i) - 20, pid, pid, now - 10**9 + 1000 * i, now - 10**9 + 1000 * i + 500, first + i + 1)
            db.execute(f'INSERT INTO "rocpd_region{uuid}" (id, nid, pid, tid, start, end, name_id, event_id) VALUES (?, 77, ?, ?, ?, ?, 2, ?)', row)


def kernels(db, uuid, pid):
    """What ran on a GPU, by the first calls of a process."""
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for table, more in [
        ("agent", {"type": "GPU"}),
        ("queue", {}),
        ("stream", {}),
        ("code_object", {"agent_id": 1}),
        ("kernel_symbol", {"code_object_id": 1, "kernel_name": "axpy", "display_name": "axpy"}),
    ]:
        row = {"id": 1, "nid": 77, "pid": pid, **more}
        db.execute(f'INSERT INTO "rocpd_info_{table}{uuid}" ({", ".join(row)}) VALUES ({", ".join("?" * len(row))})', list(row.values()))
    columns = "id, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, start, end, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, region_name_id, event_id"
    for i in range(KERNELS):
        begin = now - 10**9 + 1000 * i + 400
        row = (i + 1, 77, pid, pid, 1, 1, i + 1, 1, 1, begin, begin + 300, 1, 1, 1, 64, 1, 1, 2, i + 1)
        db.execute(f'INSERT INTO "rocpd_kernel_dispatch{uuid}" ({columns}) VALUES ({", ".join("?" * len(row))})', row)


def json_file(path, pid):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    call = lambda i: {
        "size": 64, "kind": 1, "operation": 0, "thread_id": pid, "correlation_id": {"internal": i + 1, "external": 0},
        "start_timestamp": now + 1000 * i, "end_timestamp": now + 1000 * i + 500,
    }
    tool = {
        "metadata": {"node": {"id": 1, "hash": 1, "machine_id": "other", "hostname": "elsewhere"}, "pid": pid, "init_time": now, "fini_time": now + 10**6, "command": ["app"]},
        "agents": [], "counters": [], "code_objects": [], "kernel_symbols": [],
        "strings": {"callback_records": [], "buffer_records": [{"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel"]}]},
        "callback_records": {}, "buffer_records": {"hip_api": [call(i) for i in range(CALLS)]},
    }
    with open(path, "w") as out:
        json.dump({"rocprofiler-sdk-tool": [tool]}, out)


def perfetto_file(path, pid):
    """Slices on the track of a thread, as packets of perfetto's trace.proto and track_event.proto."""
    def varint(value):
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    number = lambda field, value: varint(field << 3) + varint(value)
    block = lambda field, value: varint(field << 3 | 2) + varint(len(value)) + value
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    packet = lambda content: block(1, number(10, 7) + number(58, 6) + content)
    process = number(1, 1) + block(3, number(1, pid))
    thread = number(1, 2) + number(5, 1) + block(4, number(1, pid) + number(2, pid) + block(5, b"main"))
    out = packet(number(13, 1) + block(60, process)) + packet(block(60, thread))
    for i in range(CALLS):
        begin = number(9, 1) + number(11, 2) + block(22, b"rocm_hip_api") + block(23, b"hipLaunchKernel")
        out += packet(number(8, now + 1000 * i) + block(11, begin))
        out += packet(number(8, now + 1000 * i + 500) + block(11, number(9, 2) + number(11, 2)))
    with open(path, "wb") as trace:
        trace.write(out)


def files_of(pid, words):
    """The files of one process, as the profiler names them."""
    if NAME == "rocprofv3":
        folder = os.path.join(words[words.index("-d") + 1], os.uname().nodename)
        os.makedirs(folder, exist_ok=True)
        form = words[words.index("-f") + 1]
        if form == "rocpd" and OLD:
            refuse("invalid choice: 'rocpd' (choose from 'csv', 'json', 'pftrace')")
        if form == "json":
            yield os.path.join(folder, "%d_results.json" % pid), json_file
        else:
            yield os.path.join(folder, "%d_results.db" % pid), database
        if WRONG == "about":
            about = {"timemory": {"metadata": {"environment": [{"key": "MY_TOKEN", "value": "hunter2"}]}}}
            with open(os.path.join(folder, "mine.json"), "w") as out:
                json.dump(about, out, indent=4)
            with open(os.path.join(folder, "other.json"), "w") as out:
                json.dump({"calls": [1] * 10**6, "environment": {"MY_TOKEN": "hunter2"}}, out)
            with open(os.path.join(folder, "torn.db"), "w") as out:
                out.write("a page of a database that has lost its first one: MY_TOKEN=hunter2")
        if WRONG == "tables":
            open(os.path.join(folder, "%d_kernel_stats.csv" % pid), "w").write('"Name","Calls","TotalDurationNs"\n')
            open(os.path.join(folder, "%d_results.otf2" % pid), "w").write("OTF2")
    else:
        folder = os.environ["ROCPROFSYS_OUTPUT_PATH"]
        open(os.path.join(folder, "wall_clock-%d.txt" % pid), "w").write("for people")
        yield os.path.join(folder, "perfetto-trace-%d.proto" % pid), perfetto_file
        if os.environ.get("ROCPROFSYS_USE_ROCPD") == "ON":
            yield os.path.join(folder, "rocpd-%d.db" % pid), database


def write(pid, words):
    if WRONG == "silent":
        return
    for path, writer in files_of(pid, words):
        writer(path, pid)
        if WRONG == "cut":
            os.truncate(path, os.path.getsize(path) * 2 // 3)


def settings(words):
    if words[:1] != ["-G"] or words[2:] != ["-d"]:
        refuse("usage: rocprof-sys-avail -G FILE -d")
    names = ["OUTPUT_PATH", "TIME_OUTPUT", "USE_PID", "PERFETTO_BACKEND"] + ([] if OLD else ["USE_ROCPD"])
    open(words[1], "w").write("".join("ROCPROFSYS_%s = x\n" % name for name in names))
    sys.exit(0)


def number_of_the_program(words):
    """Profilers write in the program and know its number; this one stays above it."""
    folder = words[words.index("-d") + 1] if NAME == "rocprofv3" else os.environ["ROCPROFSYS_OUTPUT_PATH"]
    mark = os.path.join(os.path.dirname(folder), "started")
    while not (os.path.exists(mark) and "\n" in open(mark).read()):
        time.sleep(0.005)
    return int(open(mark).read().split()[0])


def with_a_child():
    """Starts one that holds the outputs, and which nobody waits for, so that its parent is another one."""
    child = os.path.join(HERE, "child")
    if os.fork() == 0:
        if os.fork() == 0:
            with open(child, "w") as number:
                number.write("%d\n" % os.getpid())
            time.sleep(3600)
        os._exit(0)
    os.wait()
    while not (os.path.exists(child) and open(child).read()):
        time.sleep(0.005)


def main():
    words = sys.argv[1:]
    if words == ["--help"]:
        if WRONG == "no-help":
            time.sleep(3600)
        if WRONG == "help-fails":
            raise ModuleNotFoundError("No module named 'yaml'")
        if NAME == "rocprofv3":
            print("\n".join("  --%s-trace [BOOL]" % name for name in OPTIONS))
            print("  -f, --output-format {csv,json,pftrace%s} [...]" % ("" if OLD else ",otf2,rocpd"))
        else:
            print("-I, --include: kokkosp mpip ompt rcclp " + ("rocm-smi roctracer rocprofiler roctx" if OLD else "amd-smi rocm"))
        sys.exit(0)
    if words == ["--version"]:
        print("    version: %s\n    git_revision: 0" % ("0.5.0" if OLD else "1.0.0"))
        sys.exit(0)
    if NAME == "rocprof-sys-avail":
        settings(words)
    at = words.index("--")
    ours, command = words[:at], words[at + 1:]
    note("run", ours)
    if WRONG == "fails":
        refuse("error while loading shared libraries: libamdhip64.so")
    if WRONG == "hangs":
        time.sleep(3600)
    if WRONG == "deaf":
        with_a_child()
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(4))
        note("deaf", [])
        time.sleep(3600)
    child = os.fork()
    if child == 0:
        os.execvp(command[0], command)
    program = number_of_the_program(ours)
    if WRONG == "leaves":
        os._exit(9)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    write(program + 1 if WRONG == "child-only" else program, ours)
    if WRONG == "forks":
        for other in range(3):
            write(program + 1 + other, ours)
    if WRONG == "crashes-behind":
        os.kill(os.getpid(), signal.SIGSEGV)
    if WRONG == "hangs-behind":
        with_a_child()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    if WRONG == "passes":
        again = os.spawnvp(os.P_WAIT, command[0], command)
        sys.exit(1 if status or again else 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.WEXITSTATUS(status))


main()
