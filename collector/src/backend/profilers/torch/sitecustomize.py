"""Starts PyTorch's profiler in a program without changing the program.

Python imports this module when it starts. It waits for the program to import torch, profiles from then on, and writes
a trace when the program ends. Guarantees:

* Another sitecustomize module runs as if this one did not exist.
* It imports nothing before the program imports torch, and prints nothing.
* It does not affect signals, exit status and output.
* It does not profile worker processes (DataLoader, multiprocessing, other forks) and launchers (torchrun). A process
  that torch.multiprocessing.spawn starts is a rank, not a worker. So is a process that multiprocessing spawns (and
  does not fork), once it joins a process group.
* If the program starts a profiler of its own, this one ends first.
* An error in this module becomes a line in a file, and never an error in the program.

Files for the collector besides traces: `torch-PID.mark` while a profiler has not written, with its rank;
`torch.loaded.state`, `torch.imported.state` and `torch.children.state` when a process has reached that state.
"""

import os
import sys

_FOLDER = os.environ.get("RPD_TORCH_OUTPUT", "")
# Modules of functions that run a rank in a process that multiprocessing has started.
_RANKS = ("torch.multiprocessing.spawn",)
# Variables that show that a launcher has started several processes, each of which may spawn ranks.
_WORLD_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE")
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


def _note(text):
    try:
        with open(os.path.join(_FOLDER, "torch-%d.note" % os.getpid()), "a") as notes:
            notes.write(text + "\n")
    except OSError:
        pass


def _state(name):
    """Creates a file that records that a process has reached a state. Returns whether it is the first one."""
    try:
        os.close(os.open(os.path.join(_FOLDER, "torch.%s.state" % name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return True
    except OSError:
        return False


def _run_the_other_sitecustomize():
    """Runs the sitecustomize module that would have been imported without this one."""
    import importlib.machinery
    import importlib.util

    own = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    ours = sys.modules.get("sitecustomize")
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


def _is_worker():
    """Whether multiprocessing started this interpreter."""
    words = getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])
    if "--multiprocessing-fork" in words:
        return True
    return any("multiprocessing" in word and ("spawn_main" in word or "forkserver" in word or "resource_tracker" in word) for word in words)


def _is_launcher():
    """Whether this program starts the ranks, and is not a rank itself."""
    words = getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])
    program, module = "", False
    for word in words[1:]:
        if module or not word.startswith("-"):
            program = word
            break
        if word == "-c":
            break
        module = word == "-m"
    return "TORCHELASTIC_RUN_ID" not in os.environ and os.path.basename(program) in _LAUNCHERS


def _number(name):
    try:
        return max(0.0, float(os.environ.get(name, "") or 0))
    except ValueError:
        return 0.0


def _integer(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


class _Place:
    """Rank of a process, number of ranks, and the source of both."""

    def __init__(self, is_spawned=False, index=None, group=None):
        self.is_spawned = is_spawned
        self.index = index
        # At its start a process has RANK of its parent, which is the same for all that the parent spawns.
        self.inherited = os.environ.get("RANK") if is_spawned else None
        self.group = group

    def identity(self, torch):
        """Returns the rank in the first process group, or by the variables, or the number that spawn assigned if no other
        process spawns ranks. A source without a rank: this is a rank of unknown number."""
        group = getattr(torch, "distributed", None)
        if self.group is None and group is not None and group.is_available() and group.is_initialized():
            self.group = group.get_rank(), group.get_world_size()
        if self.group is not None:
            return self.group + ("torch.distributed, spawned" if self.is_spawned else "torch.distributed",)
        rank = _integer("RANK")
        if rank is not None and os.environ.get("RANK") != self.inherited:
            return rank, _integer("WORLD_SIZE"), "RANK"
        if not self.is_spawned:
            return None, None, None
        is_alone = rank is None and not any((_integer(name) or 1) > 1 for name in _WORLD_SIZES)
        return self.index if is_alone else None, None, "torch.multiprocessing.spawn"


def _watch_groups(joined):
    """Calls `joined` with rank and size when a process group exists. `init_process_group` looks this function up when it
    is called, so it may have been imported by name before. The program sees no other function."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    update = getattr(c10d, "_update_default_pg", None)
    if update is None:
        return

    def update_and_tell(group, *arguments, **named):
        result = update(group, *arguments, **named)
        try:
            if callable(getattr(group, "rank", None)):
                joined(group.rank(), group.size())
        except Exception as error:
            _note("the process group is not known: %s: %s" % (type(error).__name__, error))
        return result

    update_and_tell.__wrapped__ = update
    update_and_tell.__name__ = update.__name__
    c10d._update_default_pg = update_and_tell


def _is_on(name):
    return os.environ.get(name, "").lower() in ("1", "on", "true", "yes")


def _write_records(threads, path):
    """Converts what torch without Kineto recorded to the form of its traces: times are us from the start.

    Its own writer fails where a range ends in another thread than it began, or began before the profiler, as with
    collectives of gloo. Returns how many beginnings and ends have no other side, and how many ranges there are.
    """
    import json

    began, beginning, unmatched, events = {}, None, 0, 0
    for record in (record for records in threads for record in records):
        if record.name() == "__start_profile":
            beginning = beginning or record
        elif record.kind() == "push":
            began[record.handle(), record.node_id()] = record
    with open(path, "w") as trace:
        trace.write("[")
        between = ""
        for record in (record for records in threads for record in records):
            if record.kind() != "pop":
                continue
            start = began.pop((record.handle(), record.node_id()), None)
            if start is None:
                unmatched += 1
                continue
            at, end = beginning.cpu_elapsed_us(start), beginning.cpu_elapsed_us(record)
            event = {"name": start.name(), "ph": "X", "ts": round(at, 3), "dur": round(end - at, 3), "tid": start.thread_id(), "pid": "CPU functions"}
            event["args"] = {"Input Dims": start.shapes()} if start.shapes() else {}
            trace.write(between + json.dumps(event))
            between = ",\n"
            events += 1
        trace.write("]\n")
    return unmatched + len(began), events


class _Recording:
    """One profiler of one process."""

    def __init__(self, torch, place):
        self.torch = torch
        self.place = place
        self.owner = os.getpid()
        self.profiler = None
        self.times = None
        self.done = False
        self.has_forked = False

    def start(self):
        import time

        if self.done or self.profiler is not None or os.getpid() != self.owner:
            return
        torch = self.torch
        settings = {
            "record_shapes": _is_on("RPD_TORCH_SHAPES"),
            "with_stack": _is_on("RPD_TORCH_STACK"),
            "profile_memory": _is_on("RPD_TORCH_MEMORY"),
            "with_flops": _is_on("RPD_TORCH_FLOPS"),
        }
        kineto = getattr(torch.profiler, "kineto_available", lambda: True)()
        if kineto:
            profiler = torch.profiler.profile(**settings)
        else:
            from torch.autograd import profiler_legacy

            profiler = profiler_legacy.profile(**settings)
        _Guard.ours = True
        try:
            before = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.clock_gettime_ns(time.CLOCK_REALTIME)
            profiler.__enter__()
            after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        finally:
            _Guard.ours = False
        self.times = before + (after, kineto)
        self.profiler = profiler
        self.mark()

    def joined(self, rank, size):
        """Notes that a process group exists, in this process or in one that it forked."""
        if os.getpid() == self.owner:
            self.place.group = self.place.group or (rank, size)
            self.mark()
        elif _state("forked"):
            _note(
                "processes that were forked are ranks of a process group, and are left out, since a profiler does not "
                "survive a fork; start ranks by torchrun or torch.multiprocessing.spawn, or set multiprocessing's start "
                "method to spawn"
            )

    def _mark_path(self):
        return os.path.join(_FOLDER, "torch-%d.mark" % self.owner)

    def mark(self):
        """Writes the mark of a profiler that has not written."""
        if self.profiler is None:
            return
        text = ""
        if self.place.group is not None:
            text = "rank %d of %d" % self.place.group
        elif self.place.is_spawned and self.place.index is not None:
            text = "number %d of torch.multiprocessing.spawn" % self.place.index
        try:
            with open(self._mark_path(), "w") as mark:
                mark.write(text)
        except OSError:
            pass

    def stop(self, why):
        import json

        profiler, self.profiler = self.profiler, None
        self.done = True
        if profiler is None or os.getpid() != self.owner:
            return
        _Guard.ours = True
        try:
            name = os.path.join(_FOLDER, "torch-%d.pt.trace.json" % self.owner)
            boottime, realtime, after, kineto = self.times
            unmatched, events = 0, 1
            if kineto:
                profiler.__exit__(None, None, None)
                profiler.export_chrome_trace(name + ".partial")
            else:
                unmatched, events = _write_records(self.torch.autograd._disable_profiler_legacy(), name + ".partial")
            if not events:
                _note("the program imported torch and computed nothing with it")
                os.unlink(name + ".partial")
                return
            rank, size, rank_from = self.place.identity(self.torch)
            if rank is None and rank_from is not None:
                _note(
                    "process %d is a rank, and nobody knows which: it had no process group, and its launcher started "
                    "several processes that may spawn ranks" % self.owner
                )
            facts = {
                "pid": self.owner,
                "rank": rank,
                "world_size": size,
                "rank_from": rank_from,
                "start_boottime_ns": boottime,
                "start_realtime_ns": realtime,
                "start_bracket_ns": after - boottime,
                "kineto": kineto,
                "unmatched": unmatched,
                "torch": str(getattr(self.torch, "__version__", "")),
                "ended": why,
            }
            with open(name + ".rpd.json", "w") as sidecar:
                json.dump(facts, sidecar)
            os.rename(name + ".partial", name)
        except BaseException as error:
            _note("the profiler's trace could not be written: %s: %s" % (type(error).__name__, error))
        finally:
            _Guard.ours = False
            try:
                os.unlink(self._mark_path())
            except OSError:
                pass


class _Guard:
    """Whether this module is starting or stopping a profiler now."""

    ours = False


def _yield_to_others(torch, recording):
    """Ends our profiler before the program starts one."""

    def guarded(function, name):
        def begin(*arguments, **named):
            is_on = getattr(arguments[0], "enabled", True) if arguments else True
            if is_on and not _Guard.ours and os.getpid() == recording.owner and not recording.done:
                recording.stop("the program started a profiler of its own (%s)" % name)
                _note("the program started a profiler of its own (%s): the trace ends there" % name)
            return function(*arguments, **named)

        begin.__wrapped__ = function
        begin.__name__ = getattr(function, "__name__", "begin")
        begin.__doc__ = getattr(function, "__doc__", None)
        return begin

    from torch.autograd import profiler as autograd

    places = [(autograd.profile, "__enter__"), (torch.profiler.profile, "start"), (torch.profiler.profile, "__enter__")]
    try:
        from torch.autograd import profiler_legacy

        places.append((profiler_legacy.profile, "__enter__"))
    except ImportError:
        pass
    places.append((autograd.emit_nvtx, "__enter__"))
    for holder, method in places:
        own = holder.__dict__.get(method) or getattr(holder, method, None)
        if own is not None:
            setattr(holder, method, guarded(own, "%s.%s" % (holder.__module__, holder.__qualname__)))


_KEPT = []


def _in_the_main_thread(action):
    """Runs an action in the program's own thread, between two steps of the interpreter: a profiler records for the
    thread that starts it."""
    import ctypes

    def call(_):
        try:
            action()
        except BaseException as error:
            _note("%s: %s" % (type(error).__name__, error))
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    _KEPT.append(callback)
    if ctypes.pythonapi.Py_AddPendingCall(callback, None) != 0:
        _note("the interpreter takes no more calls: the profiler is neither started nor stopped")


def _after(seconds, action):
    import threading

    timer = threading.Timer(seconds, _in_the_main_thread, [action])
    timer.daemon = True
    timer.start()


def _attach_to_a_rank(torch):
    """Waits for the function of a process that multiprocessing has started, which is unknown before."""
    from multiprocessing import process

    run = process.BaseProcess.run

    def run_and_record(self):
        process.BaseProcess.run = run
        owner, recordings = os.getpid(), []

        def joined(rank, size):
            if os.getpid() == owner and not recordings:
                recordings.append(_attach(torch, _Place(True, None, (rank, size))))

        try:
            if getattr(self._target, "__module__", None) in _RANKS:
                index = self._args[1] if len(self._args) > 1 else None
                recordings.append(_attach(torch, _Place(True, index if isinstance(index, int) else None)))
            else:
                _state("children")
                _watch_groups(joined)
        except BaseException as error:
            _note("the profiler could not be started: %s: %s" % (type(error).__name__, error))
        try:
            return run(self)
        finally:
            # Children of a fork server end by os._exit.
            for recording in recordings:
                recording.stop("the process ended")

    process.BaseProcess.run = run_and_record


def _attach(torch, place):
    import atexit
    import threading

    recording = _Recording(torch, place)

    def leave_the_child_alone():
        recording.done = True

    def tell_of_the_child():
        if not recording.has_forked:
            recording.has_forked = True
            _state("children")

    os.register_at_fork(after_in_child=leave_the_child_alone, after_in_parent=tell_of_the_child)
    _watch_groups(recording.joined)
    _yield_to_others(torch, recording)
    atexit.register(recording.stop, "the program ended")
    delay, duration = _number("RPD_TORCH_DELAY"), _number("RPD_TORCH_DURATION")
    if delay > 0:
        _after(delay, recording.start)
    elif threading.current_thread() is threading.main_thread():
        recording.start()
    else:
        _in_the_main_thread(recording.start)
    if duration > 0:
        _after(delay + duration, lambda: recording.stop("the time was over"))
    return recording


class _Finder:
    """Detects the import of torch, once."""

    def __init__(self):
        self.busy = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.busy:
            return None
        import importlib.util

        self.busy = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return None
        # A search for torch does not import it, so this stays until an import.
        spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader:
    """Wraps the loader of torch, and acts after it."""

    def __init__(self, loader, finder):
        self.loader = loader
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.loader = self.loader
        module.__loader__ = self.loader
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self.finder]
        self.loader.exec_module(module)
        try:
            _state("imported")
            if _is_worker():
                _attach_to_a_rank(module)
            else:
                _attach(module, _Place())
        except BaseException as error:
            _note("the profiler could not be started: %s: %s" % (type(error).__name__, error))


if _FOLDER:
    _state("loaded")
    if not _is_launcher():
        sys.meta_path.insert(0, _Finder())
_run_the_other_sitecustomize()
