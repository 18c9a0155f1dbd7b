/* Ranks that come late to collectives, each pattern for its own reason: late PATTERN SEED
 *
 * Work is sleep, so that ranks may outnumber cores. Times are in microseconds. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size;

static void work(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void synchronise(void)
{
    double mine = rank, sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void send_to(int other)
{
    MPI_Send(&rank, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
}

static void receive_from(int other)
{
    int number;
    MPI_Recv(&number, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Halo exchange with both neighbours. */
static void exchange(void)
{
    int from[2], near[2] = {(rank + size - 1) % size, (rank + 1) % size};
    MPI_Request requests[4];
    for (int i = 0; i < 2; i++) {
        MPI_Irecv(&from[i], 1, MPI_INT, near[i], i, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(&rank, 1, MPI_INT, near[i], 1 - i, MPI_COMM_WORLD, &requests[2 + i]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* Rank 1 is slow; 2 waits for its message, 3 for that of 2. */
static void chain(void)
{
    work(rank == 1 ? 35000 : 5000);
    if (rank >= 2) receive_from(rank - 1);
    if (rank >= 1 && rank + 1 < size) send_to(rank + 1);
    synchronise();
}

/* Each rank works as long as the others, after the message of the one before it. */
static void pipeline(void)
{
    if (rank > 0) receive_from(rank - 1);
    work(10000);
    if (rank + 1 < size) send_to(rank + 1);
    synchronise();
}

/* A token goes round, and whoever has it works. */
static void ring(void)
{
    if (rank > 0) receive_from(rank - 1);
    work(10000);
    send_to((rank + 1) % size);
    if (rank == 0) receive_from(size - 1);
    synchronise();
}

/* Rank 1 computes and sends to 0, which looks for the message now and then; the others wait for 0. */
static void poll(void)
{
    if (rank == 1) {
        work(30000);
        send_to(0);
    } else if (rank == 0) {
        int is_there = 0;
        while (!is_there) {
            MPI_Iprobe(1, 0, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
            if (!is_there) work(1000);
        }
        receive_from(1);
    }
    synchronise();
}

/* Rank 0 writes a file, so to say, and the others wait for what it sends. */
static void broadcast(void)
{
    if (rank == 0) work(30000);
    MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static void *receive_in_a_thread(void *unused)
{
    receive_from(rank - 1);
    return unused;
}

/* The pipeline, with messages received in a thread of their own. */
static void threads(void)
{
    pthread_t thread;
    if (rank > 0) {
        pthread_create(&thread, NULL, receive_in_a_thread, NULL);
        pthread_join(thread, NULL);
    }
    work(10000);
    if (rank + 1 < size) send_to(rank + 1);
    synchronise();
}

/* Rank 1 is late to the fence, where the others wait for it, and rank 3 by less to the collective after that. */
static void window(MPI_Win win)
{
    work(rank == 1 ? 35000 : 5000);
    MPI_Win_fence(0, win);
    work(rank == 3 ? 12000 : 2000);
    synchronise();
}

/* Rank 1 is late in its row; its row is late in all columns. */
static void grid(MPI_Comm row, MPI_Comm column)
{
    int one = 1, sum;
    work(rank == 1 ? 35000 : 5000);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, row);
    work(3000);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, column);
}

/* Rank 0 polls for a message that nobody sends while it works. */
static void poll_at_work(void)
{
    for (int i = 0; i < (rank == 0 ? 30 : 5); i++) {
        int is_there;
        MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
        work(1000);
    }
    synchronise();
}

static void stencil(long own)
{
    for (int i = 0; i < 5; i++) {
        work(own);
        exchange();
    }
    synchronise();
}

int main(int argc, char **argv)
{
    const char *pattern = argc > 1 ? argv[1] : "";
    int provided, side = 1;
    /* Each rank starts so much later than the one before it. */
    if (!strcmp(pattern, "stagger") && getenv("OMPI_COMM_WORLD_RANK"))
        work(300000L * atoi(getenv("OMPI_COMM_WORLD_RANK")));
    if (!strcmp(pattern, "threads")) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long *memory;
    MPI_Win win = MPI_WIN_NULL;
    if (!strcmp(pattern, "window"))
        MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Comm row = MPI_COMM_NULL, column = MPI_COMM_NULL;
    if (!strcmp(pattern, "grid")) {
        while ((side + 1) * (side + 1) <= size) side++;
        MPI_Comm_split(MPI_COMM_WORLD, rank / side, rank, &row);
        MPI_Comm_split(MPI_COMM_WORLD, rank % side, rank, &column);
    }
    /* The same in all ranks. */
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    int steps = 40;
    /* Late before ranks have ever met, and a short run after that. */
    if (!strcmp(pattern, "start-up")) {
        work(rank == 3 ? 800000 : 0);
        steps = 8;
    }
    synchronise();
    for (int step = 0; step < steps; step++) {
        int turn = rand() % size;
        if (!strcmp(pattern, "chain")) chain();
        else if (!strcmp(pattern, "pipeline")) pipeline();
        else if (!strcmp(pattern, "ring")) ring();
        else if (!strcmp(pattern, "stencil")) stencil(rank == 2 ? 15000 : 5000);
        /* Once, 5 % of the run. */
        else if (!strcmp(pattern, "stencil-sleep")) {
            if (step == 20 && rank == 2) work(60000);
            if (step == 20) synchronise();
            stencil(5000);
        } else if (!strcmp(pattern, "sleeper")) {
            work(rank == 2 ? 35000 : 20000);
            synchronise();
        } else if (!strcmp(pattern, "two")) {
            work(rank == 1 || rank == 2 ? 50000 : 20000);
            synchronise();
        } else if (!strcmp(pattern, "three")) {
            work(rank != 0 ? 50000 : 20000);
            synchronise();
        } else if (!strcmp(pattern, "alternate")) {
            work(rank == 1 + step % 2 ? 50000 : 20000);
            synchronise();
        } else if (!strcmp(pattern, "once")) {
            work(rank == 2 && step == 20 ? 500000 : 20000);
            synchronise();
        } else if (!strcmp(pattern, "poll")) poll();
        else if (!strcmp(pattern, "broadcast")) broadcast();
        else if (!strcmp(pattern, "threads")) threads();
        else if (!strcmp(pattern, "window")) window(win);
        else if (!strcmp(pattern, "grid")) grid(row, column);
        else if (!strcmp(pattern, "poll-at-work")) poll_at_work();
        else if (!strcmp(pattern, "start-up")) {
            work(rank == step % size ? 6000 : 5000);
            synchronise();
        } else if (!strcmp(pattern, "never")) {
            work(10000);
            /* The others wait for it until it ends them. */
            if (rank == 1 && step == 20) {
                work(1500000);
                MPI_Abort(MPI_COMM_WORLD, 3);
            }
            synchronise();
        } else if (!strcmp(pattern, "balanced") || !strcmp(pattern, "finalize") || !strcmp(pattern, "stagger")) {
            work(30000);
            synchronise();
        } else if (!strcmp(pattern, "turns")) {
            work(rank == turn ? 35000 : 20000);
            synchronise();
        } else {
            fprintf(stderr, "no pattern '%s'\n", pattern);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    if (win != MPI_WIN_NULL) MPI_Win_free(&win);
    if (!strcmp(pattern, "finalize") && rank == 2) work(900000);
    MPI_Finalize();
    return 0;
}
