# Trains a small network with DistributedDataParallel of torch over gloo: ddp.py STEPS. Ranks come from Open MPI, the address
# from MASTER_ADDR and MASTER_PORT. Two worker processes of each rank load its data. Rank 0 prints the last loss, and in the last
# line, in seconds, the CPU time of all ranks and workers, user and system, that of a step of a rank without its workers on average,
# the share of the steps that count in this mean, those in which each rank had a whole core, and the best time of the loop by which
# that is found, of the rank where it is longest.
import ctypes
import os
import resource
import sys
import time

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

roctx = ctypes.CDLL(None)
steps = int(sys.argv[1])
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])


class Waves(Dataset):
    """Made-up regression data."""

    def __len__(self):
        return steps * BATCH

    def __getitem__(self, place):
        generator = torch.Generator().manual_seed(place * size + rank)
        sample = torch.randn(FEATURES, generator=generator)
        return sample, sample.sin().sum(dim=0, keepdim=True)


class Range:
    """A range of roctx, if there is one."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        if hasattr(roctx, "roctxRangePushA"):
            roctx.roctxRangePushA(self.name)

    def __exit__(self, *unused):
        if hasattr(roctx, "roctxRangePop"):
            roctx.roctxRangePop()


def cpu_seconds():
    usages = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def spin(count):
    for _ in range(count):
        pass


def control():
    """Returns the time of a fixed loop. It takes longer while another hardware thread uses the core."""
    # After other work, a loop is slower at first.
    spin(500)
    began = time.perf_counter_ns()
    spin(3000)
    return time.perf_counter_ns() - began


BATCH, FEATURES = 32, 256
torch.set_num_threads(1)
torch.manual_seed(1)
distributed.init_process_group("gloo", rank=rank, world_size=size)
layers = torch.nn.Sequential(
    torch.nn.Linear(FEATURES, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)
)
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = torch.zeros(1)
step_times, controls = [], [control()]
began = time.process_time_ns()
for sample, target in DataLoader(Waves(), batch_size=BATCH, num_workers=2):
    with Range(b"step"):
        with Range(b"forward"):
            loss = torch.nn.functional.mse_loss(model(sample), target)
        with Range(b"backward"):
            optimizer.zero_grad()
            loss.backward()
        with Range(b"optimizer"):
            optimizer.step()
    step_times.append(time.process_time_ns() - began)
    controls.append(control())
    began = time.process_time_ns()
spent = torch.tensor([cpu_seconds()], dtype=torch.float64)
distributed.all_reduce(spent)
best = torch.tensor([min(controls)], dtype=torch.float64)
is_whole = torch.tensor(controls) < 1.05 * best
distributed.all_reduce(best, op=distributed.ReduceOp.MAX)
counted = (is_whole[1:] & is_whole[:-1]).to(torch.int64)
# The first steps start the workers.
counted[:5] = 0
distributed.all_reduce(counted, op=distributed.ReduceOp.MIN)
mean = torch.tensor(step_times, dtype=torch.float64)[counted > 0].sum() / max(1, counted.sum().item()) / size / 1e9
distributed.all_reduce(mean)
if rank == 0:
    print(loss.item().hex())
    print(f"{spent.item():.6f} {mean.item():.9f} {counted.sum().item() / steps:.4f} {best.item() / 1e9:.9f}")
distributed.destroy_process_group()
