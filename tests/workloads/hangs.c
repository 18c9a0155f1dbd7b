/* Programs that hang and end by an alarm: hangs PATTERN. Ranks do some steps together before. */
#include <mpi.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 20, HANG_SECONDS = 2 };

int main(int argc, char **argv) {
    int rank, size, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *pattern = argc > 1 ? argv[1] : "";
    for (int step = 0; step < STEPS; step++) {
        struct timespec work = {0, 5000000};
        nanosleep(&work, NULL);
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    alarm(HANG_SECONDS);
    if (strcmp(pattern, "missed") == 0) {
        /* Rank 2 waits for a message that rank 0 never sends, while the others are in a collective. */
        if (rank == 2)
            MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (strcmp(pattern, "outside") == 0) {
        /* Rank 1 never comes to the barrier. */
        if (rank == 1)
            pause();
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(pattern, "receives") == 0) {
        /* Neighbours receive before they send. */
        MPI_Recv(&value, 1, MPI_INT, rank ^ 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, rank ^ 1, 3, MPI_COMM_WORLD);
    } else if (strcmp(pattern, "waits") == 0) {
        /* Each rank waits for two messages, of which the next rank sends one. */
        MPI_Request requests[2];
        int values[2];
        for (int tag = 0; tag < 2; tag++)
            MPI_Irecv(&values[tag], 1, MPI_INT, (rank + 1) % size, tag, MPI_COMM_WORLD, &requests[tag]);
        MPI_Send(&value, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else {
        alarm(0);
    }
    MPI_Finalize();
    return 0;
}
