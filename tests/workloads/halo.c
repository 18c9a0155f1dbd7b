/* Smooths a row of numbers that is distributed over the ranks, with a halo exchange in each step and a reduction in every
   tenth: halo STEPS. Rank 0 prints the sum of the numbers, and in the last line, in seconds, the CPU time of all ranks, user and
   system, that of a step of a rank on average, the share of the steps that count in this mean, those in which each rank had a
   whole core, and the best time of the loop by which that is found, of the rank where it is longest. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* The row is in the L2 cache of a core: that of the next level may be shared with other virtual machines, which control() does not
   see. */
enum { CELLS = 30000, SWEEPS = 53 };

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

static double seconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Keeps all adders of a core busy. */
static void add(int count)
{
    unsigned long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
    for (int i = 0; i < count; i++) {
        a += 1, b += 1, c += 1, d += 1, e += 1, f += 1;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
}

/* Time of a loop that takes longer while another hardware thread uses the core. */
static double control(void)
{
    /* After other work, a loop is slower at first. */
    add(1000);
    double began = seconds(CLOCK_MONOTONIC);
    add(10000);
    return seconds(CLOCK_MONOTONIC) - began;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    double *row = malloc((CELLS + 2) * sizeof *row), sum = 0;
    for (int cell = 0; cell < CELLS + 2; cell++) row[cell] = (cell * 7 + rank) % 11;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    double *spent = calloc(steps + 1, sizeof *spent), *controls = calloc(steps + 1, sizeof *controls), best = 1;
    char *whole = calloc(steps + 1, 1);
    controls[0] = control();
    for (int step = 0; step < steps; step++) {
        double began = seconds(CLOCK_PROCESS_CPUTIME_ID);
        push("step");
        MPI_Request requests[4];
        MPI_Irecv(&row[0], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&row[CELLS + 1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(&row[CELLS], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(&row[1], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        push("update");
        for (int sweep = 0; sweep < SWEEPS; sweep++) {
            /* In place: with a second row, one run in 60 takes a quarter longer, by the addresses that the rows happen to have. */
            double before = row[0];
            for (int cell = 1; cell <= CELLS; cell++) {
                double own = row[cell];
                row[cell] = (before + own + row[cell + 1]) / 3;
                before = own;
            }
        }
        pop();
        if (step % 10 == 9) {
            double own = row[1] + row[CELLS / 2];
            MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
        pop();
        spent[step] = seconds(CLOCK_PROCESS_CPUTIME_ID) - began;
        controls[step + 1] = control();
    }
    double own = cpu_seconds(), all, of_steps = 0, mean;
    for (int step = 0; step <= steps; step++)
        if (controls[step] < best) best = controls[step];
    for (int step = 0; step < steps; step++)
        whole[step] = controls[step] < 1.05 * best && controls[step + 1] < 1.05 * best;
    MPI_Allreduce(MPI_IN_PLACE, whole, steps, MPI_CHAR, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int counted = 0;
    for (int step = 0; step < steps; step++)
        if (whole[step]) of_steps += spent[step], counted++;
    of_steps /= counted ? (double)counted * size : 1;
    MPI_Reduce(&of_steps, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.17g\n%.6f %.9f %.4f %.9f\n", sum, all, mean, (double)counted / steps, best);
    MPI_Finalize();
    return 0;
}
