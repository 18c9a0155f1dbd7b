#!/usr/bin/env python3
"""A data-parallel training loop: a small network, trained with SGD on made-up regression data.

Every rank holds its own share of the data. Each step is a roctx range, iteration, with its five phases
in it: data, forward, backward, allreduce, step. Each epoch begins with a roctx mark. One rank is slow.

    mpirun -n 4 rpd-collect -- python3 train.py     # under MPI: mpi4py and numpy
    python3 train.py --no-mpi                       # one rank: numpy only

What it prints depends on the arguments and the number of ranks only, never on a profiler beside it.
With --counts PREFIX each rank writes what it called, so that a test can compare:
    PREFIX.<rank>.json         name -> calls: every range, every MPI function (not rank and size queries)
    PREFIX.<rank>.marks.json   text -> times
"""

import argparse
import collections
import ctypes
import json
import os
import sys
import time

# Ranks share the cores: one thread each, and the same sums in the same order every time.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402  (after the variables above)

# What a launcher tells its processes; SLURM_NTASKS is no proof, a batch script has it too.
LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")


class Roctx:
    """Ranges and marks. A preloaded library comes first, as it does for a program in C; without any: nothing."""

    def __init__(self):
        self.ranges = collections.Counter()
        self.marks = collections.Counter()
        self._library = self._find()

    @staticmethod
    def _find():
        for name in (None, "libroctx64.so", "libroctx64.so.4"):
            try:
                library = ctypes.CDLL(name)
                for function in (library.roctxRangePushA, library.roctxMarkA):
                    function.argtypes = [ctypes.c_char_p]
                library.roctxRangePop.argtypes = []
                return library
            except (OSError, AttributeError):
                continue
        return None

    def range(self, name):
        """A context manager: `with roctx.range("forward"):`."""
        return _Range(self, name)

    def mark(self, text):
        self.marks[text] += 1
        if self._library:
            self._library.roctxMarkA(text.encode())


class _Range:
    def __init__(self, roctx, name):
        self._roctx, self._name = roctx, name

    def __enter__(self):
        self._roctx.ranges[self._name] += 1
        if self._roctx._library:
            self._roctx._library.roctxRangePushA(self._name.encode())

    def __exit__(self, *_):
        if self._roctx._library:
            self._roctx._library.roctxRangePop()


class World:
    """All ranks, through mpi4py. Counts the MPI functions that are called."""

    def __init__(self, mpi):
        self._mpi, self._comm = mpi, mpi.COMM_WORLD
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        # mpi4py calls both by itself: one when it is imported, the other when Python ends.
        self.calls = collections.Counter({"MPI_Init_thread": 1, "MPI_Finalize": 1})

    def broadcast(self, array):
        self.calls["MPI_Bcast"] += 1
        self._comm.Bcast(array, root=0)

    def sum_on_all(self, array):
        self.calls["MPI_Allreduce"] += 1
        self._comm.Allreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)

    def sum_on_first(self, array):
        self.calls["MPI_Reduce"] += 1
        total = np.empty_like(array) if self.rank == 0 else None
        self._comm.Reduce(array, total, op=self._mpi.SUM, root=0)
        return total

    def barrier(self):
        self.calls["MPI_Barrier"] += 1
        self._comm.Barrier()


class Alone:
    """One rank without MPI."""

    rank, size = 0, 1

    def __init__(self):
        self.calls = collections.Counter()

    def broadcast(self, array):
        pass

    def sum_on_all(self, array):
        pass

    def sum_on_first(self, array):
        return array

    def barrier(self):
        pass


def connect(no_mpi):
    """The world of this process: MPI's, or itself where there is neither mpi4py nor a launcher."""
    if no_mpi:
        return Alone()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if any(variable in os.environ for variable in LAUNCHER_VARIABLES):
            sys.exit(f"train.py: started by an MPI launcher, but mpi4py does not load: {error}")
        return Alone()
    return World(MPI)


class Network:
    """Two dense layers with tanh between them. All weights live in one buffer, all gradients in another."""

    def __init__(self, inputs, width):
        shapes = ((inputs, width), (width,), (width, 1), (1,))
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.weights, self.gradients = np.zeros(sum(sizes)), np.zeros(sum(sizes))
        ends = np.cumsum(sizes)
        pieces = [slice(end - size, end) for end, size in zip(ends, sizes)]
        # One message per layer, the last layer first: the order in which gradients become ready.
        self.layers = (slice(pieces[2].start, pieces[3].stop), slice(pieces[0].start, pieces[1].stop))
        views = [[flat[p].reshape(s) for p, s in zip(pieces, shapes)] for flat in (self.weights, self.gradients)]
        (self.w1, self.b1, self.w2, self.b2), (self.dw1, self.db1, self.dw2, self.db2) = views

    def fill(self, random):
        self.w1[:] = random.standard_normal(self.w1.shape) / np.sqrt(self.w1.shape[0])
        self.w2[:] = random.standard_normal(self.w2.shape) / np.sqrt(self.w2.shape[0])

    def forward(self, x):
        self.x, self.hidden = x, np.tanh(x @ self.w1 + self.b1)
        return self.hidden @ self.w2 + self.b2

    def backward(self, error):
        """Gradients of the mean squared error; `error` is prediction minus target."""
        slope = 2.0 * error / len(error)
        self.dw2[:] = self.hidden.T @ slope
        self.db2[:] = slope.sum(axis=0)
        back = (slope @ self.w2.T) * (1.0 - self.hidden**2)
        self.dw1[:] = self.x.T @ back
        self.db1[:] = back.sum(axis=0)


def batch_of(random, rows, inputs):
    x = random.standard_normal((rows, inputs))
    y = np.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
    return x, y


def train(world, roctx, options):
    """Returns the mean loss over all ranks in the last epoch, on rank 0; None elsewhere."""
    network = Network(options.inputs, options.width)
    if world.rank == 0:
        network.fill(np.random.default_rng(options.seed))
    world.broadcast(network.weights)

    random = np.random.default_rng([options.seed, world.rank])
    slow = world.rank == options.straggler
    losses, final = [], None
    for step in range(options.steps):
        if step % options.epoch == 0:
            roctx.mark(f"epoch {step // options.epoch}")
        with roctx.range("iteration"):
            with roctx.range("data"):
                x, y = batch_of(random, options.batch, options.inputs)
            with roctx.range("forward"):
                error = network.forward(x) - y
                losses.append(float(np.mean(error**2)))
                if slow:
                    time.sleep(options.delay_ms / 1000)
            with roctx.range("backward"):
                network.backward(error)
            with roctx.range("allreduce"):
                for layer in network.layers:
                    world.sum_on_all(network.gradients[layer])
            with roctx.range("step"):
                network.weights -= options.rate / world.size * network.gradients
        if (step + 1) % options.epoch == 0 or step + 1 == options.steps:
            total = world.sum_on_first(np.array([np.mean(losses)]))
            final = None if total is None else total[0] / world.size
            losses.clear()
    world.barrier()
    return final


def write_counts(prefix, world, roctx):
    for suffix, counts in (("json", roctx.ranges + world.calls), ("marks.json", roctx.marks)):
        with open(f"{prefix}.{world.rank}.{suffix}", "w", encoding="utf-8") as file:
            json.dump(counts, file, indent=1, sort_keys=True)


def at_least(smallest):
    def parse(text):
        if int(text) < smallest:
            raise argparse.ArgumentTypeError(f"{text} is less than {smallest}")
        return int(text)

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(description="A data-parallel training loop with roctx ranges.")
    parser.add_argument("--steps", type=at_least(1), default=20)
    parser.add_argument("--epoch", type=at_least(1), default=5, help="steps per epoch (default 5)")
    parser.add_argument("--width", type=at_least(1), default=512, help="hidden units (default 512)")
    parser.add_argument("--inputs", type=at_least(3), default=32, help="features per row (default 32)")
    parser.add_argument("--batch", type=at_least(1), default=512, help="rows per rank and step (default 512)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (default 0.05)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--straggler", type=int, metavar="RANK", help="slow rank; -1: none (default 1)")
    parser.add_argument("--delay-ms", type=at_least(0), default=60, help="how slow, per step (default 60)")
    parser.add_argument("--no-mpi", action="store_true", help="run as one rank, without mpi4py")
    parser.add_argument("--counts", metavar="PREFIX", help="write what was called to PREFIX.<rank>.json")
    return parser.parse_args()


def main():
    options = parse_arguments()
    world, roctx = connect(options.no_mpi), Roctx()
    if options.straggler is None:
        options.straggler = 1 if world.size > 1 else -1
    loss = train(world, roctx, options)
    if options.counts:
        write_counts(options.counts, world, roctx)
    if world.rank == 0:
        print(f"ranks: {world.size}, steps: {options.steps}, final loss: {loss:.6f}", flush=True)


if __name__ == "__main__":
    main()
