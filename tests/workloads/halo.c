/* Smooths a row of numbers that is distributed over the ranks, with a halo exchange in each step and a reduction in every
   tenth: halo STEPS. Rank 0 prints the sum of the numbers, and the CPU time of all ranks, user and system, in seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { CELLS = 200000, SWEEPS = 8 };

int roctxRangePushA(const char *) __attribute__((weak));
int roctxRangePop(void) __attribute__((weak));

static void push(const char *name)
{
    if (roctxRangePushA) roctxRangePushA(name);
}

static void pop(void)
{
    if (roctxRangePop) roctxRangePop();
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    double *row = malloc((CELLS + 2) * sizeof *row), *next = malloc((CELLS + 2) * sizeof *next), sum = 0;
    for (int cell = 0; cell < CELLS + 2; cell++) row[cell] = next[cell] = (cell * 7 + rank) % 11;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int step = 0; step < steps; step++) {
        push("step");
        MPI_Request requests[4];
        MPI_Irecv(&row[0], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&row[CELLS + 1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(&row[CELLS], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(&row[1], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        push("update");
        for (int sweep = 0; sweep < SWEEPS; sweep++) {
            for (int cell = 1; cell <= CELLS; cell++) next[cell] = (row[cell - 1] + row[cell] + row[cell + 1]) / 3;
            double *swap = row;
            row = next;
            next = swap;
        }
        pop();
        if (step % 10 == 9) {
            double own = row[1] + row[CELLS / 2];
            MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
        pop();
    }
    double own = cpu_seconds(), all;
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.17g\n%.6f\n", sum, all);
    MPI_Finalize();
    return 0;
}
