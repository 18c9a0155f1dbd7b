/* Programs of which a verdict is easily wrong: verdicts PATTERN SLOW_RANK; -1 makes no rank slow. Work is a pause, so
   that ranks do not compete for cores. */
#include <mpi.h>
#include <string.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 30, WORK_MS = 10, SLOW_MS = 15, LARGE = 1 << 16 };

static int rank, size;
static double from[LARGE], to[LARGE];

static void pause_ms(int ms) {
    struct timespec left = {0, ms * 1000000L};
    while (nanosleep(&left, &left) != 0) {
    }
}

/* Each rank puts into the next one's window. */
static void fence(MPI_Win window) {
    MPI_Put(from, 1, MPI_DOUBLE, (rank + 1) % size, 0, 1, MPI_DOUBLE, window);
    MPI_Win_fence(0, window);
}

/* Large messages around a ring: MPI sends them when their receives are posted. */
static void large(void) {
    MPI_Request request;
    MPI_Isend(from, LARGE, MPI_DOUBLE, (rank + 1) % size, 0, MPI_COMM_WORLD, &request);
    MPI_Recv(to, LARGE, MPI_DOUBLE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A line of ranks: those at its ends call other functions. */
static void line(void) {
    int at_left = rank == 0, at_right = rank == size - 1;
    if (at_left || at_right) {
        int other = at_left ? 1 : size - 2;
        MPI_Send(from, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD);
        MPI_Recv(to, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Request requests[4];
    for (int side = 0; side < 2; side++) {
        int other = rank + 2 * side - 1;
        MPI_Irecv(to + side, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD, &requests[side]);
        MPI_Isend(from, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD, &requests[2 + side]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* Polls for the end of a barrier, with short pauses. */
static void polls(void) {
    MPI_Request request;
    int is_done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (!is_done) {
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done) {
            struct timespec nap = {0, 200000};
            nanosleep(&nap, NULL);
        }
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 3) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win window;
    double *shared;
    MPI_Win_allocate(sizeof *shared, sizeof *shared, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
    MPI_Win_fence(0, window);
    int slow_rank = atoi(argv[2]);
    for (int step = 0; step < STEPS; step++) {
        pause_ms(rank == slow_rank ? SLOW_MS : WORK_MS);
        if (strcmp(argv[1], "fence") == 0) {
            fence(window);
        } else if (strcmp(argv[1], "large") == 0) {
            large();
        } else if (strcmp(argv[1], "line") == 0) {
            line();
        } else {
            polls();
        }
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
