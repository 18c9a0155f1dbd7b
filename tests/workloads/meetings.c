/* Ranks that work for a while and meet, again and again: meetings SECONDS sleep|spin GAP_MS
 *
 * They sleep, or keep their cores busy, for GAP_MS to twice as long between two Allreduce; rank 0 ends it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void pass(double seconds, int busy)
{
    double until = now() + seconds;
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    if (!busy) nanosleep(&time, NULL);
    while (now() < until) {}
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: meetings SECONDS sleep|spin GAP_MS\n"), 2;
    MPI_Init(&argc, &argv);
    int rank, over = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double seconds = atof(argv[1]), gap = atof(argv[3]) / 1e3, start = now();
    int busy = strcmp(argv[2], "spin") == 0;
    srand48(rank + 1);
    while (!over) {
        pass(gap * (1 + drand48()), busy);
        int mine = rank == 0 && now() - start >= seconds;
        MPI_Allreduce(&mine, &over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
