/* Programs that hang and end by an alarm: hangs PATTERN SUBJECT STEPS. Ranks do some steps together before. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HANG_SECONDS = 2 };

int main(int argc, char **argv) {
    int rank, size, value = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *pattern = argc > 1 ? argv[1] : "";
    const int subject = argc > 2 ? atoi(argv[2]) : 0, steps = argc > 3 ? atoi(argv[3]) : 1;
    for (int step = 0; step < steps; step++) {
        struct timespec work = {0, 5000000};
        nanosleep(&work, NULL);
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    alarm(HANG_SECONDS);
    if (strcmp(pattern, "missed") == 0) {
        /* The subject waits for a message that the next rank never sends, while the others are in a collective. */
        if (rank == subject)
            MPI_Recv(&value, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    } else if (strcmp(pattern, "outside") == 0) {
        /* The subject never comes to the barrier. */
        if (rank == subject)
            pause();
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(pattern, "polls") == 0) {
        /* The subject polls for a message that nobody sends. */
        int found = 0;
        while (rank == subject && !found) {
            MPI_Iprobe((rank + 1) % size, 7, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
            usleep(500);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(pattern, "died") == 0) {
        /* The subject dies, and the launcher ends the others a second later. */
        if (rank == subject) {
            usleep(500000);
            raise(SIGKILL);
        }
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
    } else if (strcmp(pattern, "roots") == 0) {
        /* The subject reduces to itself, the others to the next rank. */
        const int root = rank == subject ? subject : (subject + 1) % size;
        MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    } else {
        alarm(0);
    }
    MPI_Finalize();
    return 0;
}
