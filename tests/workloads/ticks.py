#!/usr/bin/env python3
"""Ranges named "tick", one after the other, and how many there were: for jobs that are ended from outside.

    srun -n 2 rpd-collect -- python3 ticks.py --ticks 500 --pause-ms 10 --counts PREFIX

PREFIX.<rank> has the number of ranges that have ended, at any time. --die RANK kills that rank behind its last range.
Without MPI: ranks come from Slurm, Open MPI or torchrun.
"""

import argparse
import ctypes
import os
import signal
import sys
import time

RANKS = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ticks", type=int, default=100)
    parser.add_argument("--pause-ms", type=float, default=10)
    parser.add_argument("--texts", type=int, default=0, help="bytes of a text that no other range has, in each name")
    parser.add_argument("--counts")
    parser.add_argument("--die", type=int)
    args = parser.parse_args()
    # mpirun in a job of Slurm: its own variable is the nearer one.
    found = [os.environ[name] for name in reversed(RANKS) if name in os.environ]
    rank = int(found[0]) if found else 0
    program = ctypes.CDLL(None)
    if hasattr(program, "roctxRangePushA"):
        push, pop = program.roctxRangePushA, program.roctxRangePop
        push.argtypes, pop.argtypes = [ctypes.c_char_p], []
    else:
        push, pop = lambda name: None, lambda: None
    counts = os.open(f"{args.counts}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644) if args.counts else None
    for tick in range(1, args.ticks + 1):
        push(b"tick" if args.texts == 0 else f"{tick} {os.urandom(args.texts // 2).hex()}".encode())
        time.sleep(args.pause_ms / 1000)
        pop()
        if counts is not None:
            os.pwrite(counts, f"{tick:9}".encode(), 0)
    print(f"rank {rank}: {args.ticks} ticks", flush=True)
    if args.die == rank:
        os.kill(os.getpid(), signal.SIGSEGV)
    return 0


if __name__ == "__main__":
    sys.exit(main())
