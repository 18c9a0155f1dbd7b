/* Receives for which only a status, another call or the communicator shows the partner, with ignored statuses, on 4
 * ranks:
 *
 *     mpi_matching PREFIX      writes PREFIX.RANK, with lines of a kind and four numbers:
 *       received SOURCE TAG 0 0          blocking receives from any source, in order
 *       requested SOURCE TAG 0 0         non-blocking ones, in the order of their starts
 *       prepared TAG STARTS 0 0          persistent requests, by the tag with which they were created
 *       probed SOURCE TAG 0 0            receives of messages of matched probes, in order
 *       side SIDE SIZE 0 0               intercommunicators
 *       near SOURCE SOURCE DESTINATION DESTINATION      neighbours of communicators with a topology, in order
 *       exchanged DESTINATION SOURCE TAG ROOM      MPI_Sendrecv and MPI_Sendrecv_replace
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 4, MOST = 80 };
static int me, right, left;
static FILE *facts;
static const MPI_Comm W = MPI_COMM_WORLD;

static void fact(const char *kind, int a, int b, int c, int d)
{
    fprintf(facts, "%s %d %d %d %d\n", kind, a, b, c, d);
}

/* What a message contains: its sender and its tag. */
struct message { int source, tag; };

static void send_to(int rank, int tag)
{
    struct message message = { me, tag };
    MPI_Send(&message, 2, MPI_INT, rank, tag, W);
}

/* Rank 0 takes messages of the others in the order in which they come. */
static void blocking(void)
{
    for (int i = 0; me && i < 5; i++)
        send_to(0, 10 * me + i);
    for (int i = 0; !me && i < 15; i++) {
        struct message got;
        MPI_Recv(&got, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, W, MPI_STATUS_IGNORE);
        fact("received", got.source, got.tag, 0, 0);
    }
    MPI_Barrier(W);
}

/* Completes requests by one of the functions, without a status. */
static void complete(int way, int n, MPI_Request *requests)
{
    int flag = 0, index, indices[MOST], some;

    switch (way) {
    case 0: MPI_Waitall(n, requests, MPI_STATUSES_IGNORE); break;
    case 1: for (int i = 0; i < n; i++) MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE); break;
    case 2:
        for (int left = n; left > 0; left -= some)
            MPI_Waitsome(n, requests, &some, indices, MPI_STATUSES_IGNORE);
        break;
    case 3: for (int i = 0; i < n; i++) MPI_Wait(requests + i, MPI_STATUS_IGNORE); break;
    case 4:
        while (!flag)
            MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE), usleep(500);
        break;
    case 5:
        for (int left = n; left > 0; left -= flag)
            MPI_Testany(n, requests, &index, &flag, MPI_STATUS_IGNORE), usleep(500);
        break;
    case 6:
        for (int left = n; left > 0; left -= some)
            MPI_Testsome(n, requests, &some, indices, MPI_STATUSES_IGNORE), usleep(500);
        break;
    default:
        for (int i = 0; i < n; i++)
            for (flag = 0; !flag;)
                MPI_Test(requests + i, &flag, MPI_STATUS_IGNORE), usleep(500);
    }
}

/* The same with requests, among them one of a send and one from a known source. */
static void requests(void)
{
    for (int way = 0; way < 8; way++) {
        MPI_Request all[5];
        struct message got[4], sent = { me, 100 + way };
        for (int i = 0; i < 3; i++)
            MPI_Irecv(got + i, 2, MPI_INT, MPI_ANY_SOURCE, 100 + way, W, all + i);
        MPI_Irecv(got + 3, 2, MPI_INT, right, 200 + way, W, all + 3);
        MPI_Isend(&sent, 2, MPI_INT, left, 200 + way, W, all + 4);
        for (int to = 0; to < RANKS; to++)
            if (to != me)
                send_to(to, 100 + way);
        complete(way, 5, all);
        for (int i = 0; i < 3; i++)
            fact("requested", got[i].source, got[i].tag, 0, 0);
        MPI_Barrier(W);
    }
    /* More than have a place on the stack. */
    MPI_Request many[MOST];
    struct message got[MOST];
    for (int i = 0; i < MOST; i++)
        MPI_Irecv(got + i, 2, MPI_INT, MPI_ANY_SOURCE, 300, W, many + i);
    for (int i = 0; i < MOST; i++)
        send_to(right, 300);
    MPI_Waitall(MOST, many, MPI_STATUSES_IGNORE);
    MPI_Barrier(W);
}

/* What is received in a call that also sends: from any source, from a known one, and from nobody. */
static void exchanges(void)
{
    for (int shift = 1; shift < RANKS; shift++) {
        struct message sent = { me, 400 + shift }, got[2];
        int to = (me + shift) % RANKS, from = (me + RANKS - shift) % RANKS;
        MPI_Sendrecv(&sent, 2, MPI_INT, to, 400 + shift, got, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, W,
                     MPI_STATUS_IGNORE);
        fact("exchanged", to, got->source, got->tag, 16);
        MPI_Barrier(W);
        sent.tag = 500 + shift;
        MPI_Sendrecv(&sent, 2, MPI_INT, to, 500 + shift, got, 2, MPI_INT, from, 500 + shift, W, MPI_STATUS_IGNORE);
        fact("exchanged", to, from, 500 + shift, 8);
        MPI_Barrier(W);
        sent.tag = 600 + shift;
        MPI_Sendrecv_replace(&sent, 2, MPI_INT, to, 600 + shift, MPI_ANY_SOURCE, 600 + shift, W, MPI_STATUS_IGNORE);
        fact("exchanged", to, sent.source, sent.tag, 8);
        MPI_Barrier(W);
    }
    MPI_Sendrecv(NULL, 0, MPI_INT, me, 7, NULL, 0, MPI_INT, me, 7, W, MPI_STATUS_IGNORE);
    fact("exchanged", me, me, 7, 0);
    MPI_Sendrecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 7, NULL, 0, MPI_INT, MPI_PROC_NULL, 8, W, MPI_STATUS_IGNORE);
    fact("exchanged", -1, -1, 8, 0);
}

/* Persistent requests that are started several times, alone and together. */
static void persistent(void)
{
    enum { ROUNDS = 5 };
    MPI_Request all[4];
    struct message sent[2] = { { me, 700 }, { me, 701 } }, got[2];

    MPI_Send_init(sent, 2, MPI_INT, right, 700, W, all);
    MPI_Ssend_init(sent + 1, 2, MPI_INT, right, 701, W, all + 1);
    MPI_Recv_init(got, 2, MPI_INT, left, 700, W, all + 2);
    MPI_Recv_init(got + 1, 2, MPI_INT, MPI_ANY_SOURCE, 701, W, all + 3);
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 1)
            for (int i = 0; i < 4; i++)
                MPI_Start(all + i);
        else
            MPI_Startall(4, all);
        MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < 4; i++)
        MPI_Request_free(all + i);
    fact("prepared", 700, 2 * ROUNDS, 0, 0);
    fact("prepared", 701, 2 * ROUNDS, 0, 0);
}

/* Matched probes of any message. The messages are received in another order than they were found. */
static void probes(void)
{
    for (int to = 0; to < RANKS; to++)
        if (to != me)
            send_to(to, 800 + me);
    MPI_Message found[RANKS - 1];
    MPI_Request request;
    struct message got;
    for (int i = 0; i < RANKS - 1; i++) {
        int flag = i == 0;
        if (i == 0)
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, W, found, MPI_STATUS_IGNORE);
        while (!flag)
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, W, &flag, found + i, MPI_STATUS_IGNORE), usleep(500);
    }
    for (int i = RANKS - 2; i >= 0; i--) {
        if (i == 1) {
            MPI_Imrecv(&got, 2, MPI_INT, found + i, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Mrecv(&got, 2, MPI_INT, found + i, MPI_STATUS_IGNORE);
        }
        fact("probed", got.source, got.tag, 0, 0);
    }
    MPI_Mprobe(MPI_PROC_NULL, 0, W, found, MPI_STATUS_IGNORE);
    MPI_Mrecv(&got, 2, MPI_INT, found, MPI_STATUS_IGNORE);
    fact("probed", -1, 0, 0, 0);
    MPI_Barrier(W);
}

/* Communicators of which the sides or the neighbours are known. */
static void communicators(void)
{
    MPI_Comm half, inter, cart, graph, dist, copy;

    /* Rank 1 leads the higher side of one process, rank 0 the lower one of three. */
    MPI_Comm_split(W, me == 1, 0, &half);
    MPI_Intercomm_create(half, 0, W, me == 1 ? 0 : 1, 5, &inter);
    fact("side", me == 1, me == 1 ? 1 : 3, 0, 0);
    MPI_Comm_dup(inter, &copy);
    fact("side", me == 1, me == 1 ? 1 : 3, 0, 0);
    MPI_Comm_free(&copy);

    /* Not periodic: the ends have one neighbour. */
    int dims[1] = { RANKS }, periods[1] = { 0 };
    MPI_Cart_create(W, 1, dims, periods, 0, &cart);
    int before = me ? me - 1 : -1, after = me + 1 < RANKS ? me + 1 : -1;
    fact("near", before, after, before, after);
    MPI_Comm_dup(cart, &copy);
    fact("near", before, after, before, after);
    MPI_Comm_free(&copy);

    int index[RANKS] = { 2, 4, 6, 8 }, edges[2 * RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        edges[2 * rank] = (rank + RANKS - 1) % RANKS, edges[2 * rank + 1] = (rank + 1) % RANKS;
    MPI_Graph_create(W, RANKS, index, edges, 0, &graph);
    fact("near", left, right, left, right);

    int sources[2] = { left, me }, destinations[2] = { right, me };
    MPI_Dist_graph_create_adjacent(W, 2, sources, MPI_UNWEIGHTED, 2, destinations, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                   0, &dist);
    fact("near", left, me, right, me);
    MPI_Comm_free(&dist);
    MPI_Comm_free(&graph);
    MPI_Comm_free(&cart);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    char path[4096];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &me);
    right = (me + 1) % RANKS, left = (me + RANKS - 1) % RANKS;
    snprintf(path, sizeof path, "%s.%d", argv[1], me);
    facts = fopen(path, "w");
    if (!facts)
        MPI_Abort(W, 1);
    blocking();
    requests();
    exchanges();
    persistent();
    probes();
    communicators();
    MPI_Finalize();
    return fclose(facts);
}
