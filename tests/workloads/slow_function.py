# Trains a model of two numbers in steps: slow_function.py SECONDS PATTERN. In each step, a rank augments data, evaluates
# layers, and reduces the gradient over all ranks. Rank 1 differs by the pattern:
#   equal     not at all
#   function  augments eight times as long
#   both      takes twice as long for everything
#   garbage   has many objects, which it searches for garbage in each step
# Prints the losses, and then, for each rank, the shares of its step in `augment` and in `layers`.
import ctypes
import gc
import sys
import time

from mpi4py import MPI

seconds, pattern = float(sys.argv[1]), sys.argv[2]
roctx = ctypes.CDLL(None)
comm = MPI.COMM_WORLD
STEP_SECONDS = 0.02


def augment(rounds):
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def layers(rounds):
    if collects:
        gc.collect()
    return sum(number * number for number in range(rounds))


def rounds_in(function, wanted_seconds):
    best = 1e9
    for _ in range(20):
        before = time.perf_counter()
        function(20000)
        best = min(best, time.perf_counter() - before)
    return int(20000 * wanted_seconds / best)


collects, kept = False, []
took = {augment: 0.0, layers: 0.0}


def timed(function, rounds):
    before = time.perf_counter()
    function(rounds)
    took[function] += time.perf_counter() - before


def push(name):
    if hasattr(roctx, "roctxRangePushA"):
        roctx.roctxRangePushA(name)


def pop():
    if hasattr(roctx, "roctxRangePop"):
        roctx.roctxRangePop()


# A step of the slow rank takes STEP_SECONDS.
augment_rounds, layer_rounds = comm.bcast(
    (rounds_in(augment, STEP_SECONDS * 0.08), rounds_in(layers, STEP_SECONDS * 0.36)), root=0
)
if comm.rank == 1 and pattern == "function":
    augment_rounds *= 8
elif pattern == "equal" or comm.rank == 1 and pattern == "both":
    augment_rounds, layer_rounds = augment_rounds * 2, layer_rounds * 2
elif comm.rank == 1 and pattern == "garbage":
    collects, kept = True, [[number] for number in range(150000)]
weights, losses, steps_seconds = [0.5, -0.25], [], 0.0
for step in range(int(seconds / STEP_SECONDS)):
    push(b"step")
    push(b"forward")
    before = time.perf_counter()
    timed(augment, augment_rounds)
    timed(layers, layer_rounds)
    steps_seconds += time.perf_counter() - before
    pop()
    sample = ((step * 7 + comm.rank * 3) % 11) / 11
    error = weights[0] * sample + weights[1] - 2 * sample - 1
    gradient = comm.allreduce(error * sample), comm.allreduce(error)
    weights = [weights[0] - 0.05 * gradient[0], weights[1] - 0.05 * gradient[1]]
    losses.append(comm.allreduce(error * error))
    pop()
shares = comm.gather([spent / steps_seconds for spent in took.values()], root=0)
if comm.rank == 0:
    print(*(loss.hex() for loss in losses))
    for of_rank in shares:
        print(*of_rank)
