/* Threads with a communicator each, on which every third collective is another one, counted as in
 * mpi_calls.c:
 *
 *     mpi_threads THREADS CALLS PREFIX        with 0 threads the calls are on MPI_COMM_SELF */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long calls;

static void *work(void *place)
{
    MPI_Comm comm = *(MPI_Comm *)place;
    int in = 1, out;
    for (long i = 1; i <= calls; i++) {
        if (i % 3 == 0)
            MPI_Bcast(&in, 1, MPI_INT, 0, comm);
        else
            MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int provided, me;
    char path[4096];
    MPI_Comm comms[16];
    pthread_t threads[16];
    if (argc != 4)
        return 2;
    const int n = atoi(argv[1]);
    calls = atol(argv[2]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (n > 16 || provided != MPI_THREAD_MULTIPLE)
        return 3;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int i = 0; i < n; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], 0, work, &comms[i]);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], 0);
    if (n == 0) {
        MPI_Comm self = MPI_COMM_SELF;
        work(&self);
    }
    for (int i = 0; i < n; i++)
        MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    snprintf(path, sizeof path, "%s.%d", argv[3], me);
    FILE *file = fopen(path, "w");
    if (!file)
        return 1;
    const long each = n ? n : 1, others = calls / 3;
    fprintf(file, "call MPI_Init_thread 1 0\ncall MPI_Finalize 1 0\n");
    if (n)
        fprintf(file, "call MPI_Comm_dup %d 0\ncall MPI_Comm_free %d 0\n", n, n);
    fprintf(file, "call MPI_Bcast %ld %ld\n", each * others, each * others * 4);
    fprintf(file, "call MPI_Allreduce %ld %ld\n", each * (calls - others), each * (calls - others) * 4);
    return fclose(file) != 0;
}
