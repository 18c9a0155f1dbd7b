/* Two ranks with a core each, of which rank 1 takes longer: shared_core shared | longer | quota. It shares its core with a
   process that computes all the time, or computes twice as much, or enters the cgroup whose file QUOTA_PROCS names.
   With shared_core together, both have the first core. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 300, WORK_MS = 15 };

static volatile unsigned long result;

/* Each multiplication waits for the one before, so that a round takes the same number of cycles each time. */
static void compute(long rounds) {
    unsigned long value = result | 1;
    for (long i = 0; i < rounds; i++) {
        value = value * 6364136223846793005UL + 1;
    }
    result = value;
}

/* Returns the rounds of about WORK_MS ms. */
static long calibrated(void) {
    long rounds = 1 << 16;
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double began = MPI_Wtime();
        compute(rounds);
        double took = MPI_Wtime() - began;
        best = took < best ? took : best;
    }
    return (long)(rounds * (WORK_MS / 1000.0) / best);
}

int main(int argc, char **argv) {
    int rank, steps = STEPS;
    long rounds;
    double mine = 1, sum;
    cpu_set_t core;
    pid_t child = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CPU_ZERO(&core);
    if (argc < 2) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    CPU_SET(strcmp(argv[1], "together") == 0 ? 0 : rank, &core);
    if (sched_setaffinity(0, sizeof core, &core) != 0) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    rounds = calibrated();
    MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == 1 && strcmp(argv[1], "shared") == 0) {
        child = fork();
        if (child == 0) {
            for (;;) {
            }
        }
    }
    if (strcmp(argv[1], "quota") == 0) {
        /* Each step is longer than what is left of a period of the quota. */
        rounds *= 4;
        steps /= 4;
    }
    if (rank == 1 && strcmp(argv[1], "quota") == 0) {
        FILE *procs = fopen(getenv("QUOTA_PROCS"), "w");
        if (!procs || fputs("0", procs) < 0 || fclose(procs)) {
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
    if (rank == 1 && strcmp(argv[1], "longer") == 0) {
        rounds *= 2;
    }
    for (int step = 0; step < steps; step++) {
        compute(rounds);
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    MPI_Finalize();
    return 0;
}
