/* Two ranks with a core each, of which rank 1 takes longer: shared_core shared | longer. It shares its core with a
   process that computes all the time, or computes twice as much. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
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
    int rank;
    long rounds;
    double mine = 1, sum;
    cpu_set_t core;
    pid_t child = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CPU_ZERO(&core);
    CPU_SET(rank, &core);
    if (argc < 2 || sched_setaffinity(0, sizeof core, &core) != 0) {
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
    if (rank == 1 && strcmp(argv[1], "longer") == 0) {
        rounds *= 2;
    }
    for (int step = 0; step < STEPS; step++) {
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
