"""Calls MPI from Python and counts what it does itself, as mpi_calls.c does: mpi_calls.py PREFIX.

mpi4py calls the functions for large counts where it finds some, and loads MPI where programs do not look.
"""

import collections
import sys
import time

import numpy
from mpi4py import MPI

calls = collections.Counter(MPI_Init_thread=1, MPI_Finalize=1)
sizes = collections.Counter()
done = collections.Counter()
received = collections.Counter()


def note(name, size=0, times=1):
    calls["MPI_" + name] += times
    sizes["MPI_" + name] += size


def complete(name, size=0):
    done["MPI_" + name] += 1
    received["MPI_" + name] += size


world = MPI.COMM_WORLD
me, n = world.rank, world.size
left, right = (me - 1) % n, (me + 1) % n
out, into = numpy.arange(100, dtype="f8"), numpy.zeros(100, dtype="f8")

note("Barrier"), world.Barrier()
note("Isend", 80), note("Recv", 800), note("Wait")
request = world.Isend(out[:10], right, 1)
status = MPI.Status()
world.Recv(into, MPI.ANY_SOURCE, 1, status)
assert status.source == left
request.Wait()
complete("Isend")

requests = []
for i in range(4):
    note("Irecv", 80), note("Isend", 8 * i)
    requests += [world.Irecv(into[10 * i :][:10], left, 10 + i), world.Isend(out[:i], right, 10 + i)]
note("Waitall")
statuses = [MPI.Status() for _ in requests]
MPI.Request.Waitall(requests, statuses)
for i in range(4):
    complete("Irecv", 8 * i), complete("Isend")

note("Allreduce", 16), world.Allreduce(out[:2], into[:2])
note("Allreduce", 16), world.Allreduce(MPI.IN_PLACE, into[:2])
note("Bcast", 24), world.Bcast(into[:3], 1)
note("Alltoallv", 8 * n)
world.Alltoallv([out, ([1] * n, list(range(n)))], [into, ([1] * n, list(range(n)))])
assert (into[:n] == me).all()

# Many at a time: their counts must live as long as they do.
many = []
blocks = numpy.zeros((200, n))
for block in blocks:
    note("Ialltoallv", 8 * n)
    many.append(world.Ialltoallv([out, ([1] * n, list(range(n)))], [block, ([1] * n, list(range(n)))]))
while True:
    note("Testall")
    if MPI.Request.Testall(many):
        break
    time.sleep(0.001)
for block in blocks:
    complete("Ialltoallv")
assert (blocks == me).all()

note("Comm_split"), note("Comm_set_name"), note("Allgather", 8), note("Comm_free")
half = world.Split(me % 2, me)
half.Set_name("odd" if me % 2 else "even")
half.Allgather(out[:1], into[: half.size])
half.Free()

with open(f"{sys.argv[1]}.{me}", "w") as file:
    for name, times in calls.items():
        print("call", name, times, sizes[name], file=file)
    for name, times in done.items():
        print("done", name, times, received[name], file=file)
