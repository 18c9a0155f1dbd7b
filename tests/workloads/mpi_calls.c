/* Calls every function of MPI-3 that is recorded, on any number of ranks from 2, and counts what it
 * does itself:
 *
 *     mpi_calls PREFIX      writes PREFIX.RANK, with lines
 *       call FUNCTION CALLS BYTES          bytes as this rank hands them over
 *       done FUNCTION REQUESTS BYTES       requests that it started and that it has seen complete;
 *                                          bytes of the statuses of receives
 *
 * With -DLARGE it calls the functions for large counts where there are any; libraries of MPI-3 have none. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LARGE
typedef MPI_Count Number;
typedef MPI_Aint Displacement;
#if MPI_VERSION < 4
#define WEAK(name) extern int MPI_##name##_c() __attribute__((weak));
WEAK(Send) WEAK(Ssend) WEAK(Bsend) WEAK(Rsend) WEAK(Recv) WEAK(Isend) WEAK(Issend) WEAK(Ibsend) WEAK(Irsend)
WEAK(Irecv) WEAK(Sendrecv) WEAK(Sendrecv_replace) WEAK(Mrecv) WEAK(Imrecv) WEAK(Send_init) WEAK(Ssend_init)
WEAK(Bsend_init) WEAK(Rsend_init) WEAK(Recv_init)
#define BOTH(name) WEAK(name) WEAK(I##name)
#define WEAK2(name, small) WEAK(name) WEAK(I##small)
WEAK2(Bcast, bcast) WEAK2(Gather, gather) WEAK2(Gatherv, gatherv) WEAK2(Scatter, scatter)
WEAK2(Scatterv, scatterv) WEAK2(Allgather, allgather) WEAK2(Allgatherv, allgatherv) WEAK2(Alltoall, alltoall)
WEAK2(Alltoallv, alltoallv) WEAK2(Alltoallw, alltoallw) WEAK2(Allreduce, allreduce) WEAK2(Reduce, reduce)
WEAK2(Reduce_scatter, reduce_scatter) WEAK2(Reduce_scatter_block, reduce_scatter_block) WEAK2(Scan, scan)
WEAK2(Exscan, exscan) WEAK2(Neighbor_allgather, neighbor_allgather)
WEAK2(Neighbor_allgatherv, neighbor_allgatherv) WEAK2(Neighbor_alltoall, neighbor_alltoall)
WEAK2(Neighbor_alltoallv, neighbor_alltoallv) WEAK2(Neighbor_alltoallw, neighbor_alltoallw)
#define READS_AND_WRITES(form) WEAK(File_read##form) WEAK(File_write##form)
READS_AND_WRITES() READS_AND_WRITES(_all) READS_AND_WRITES(_at) READS_AND_WRITES(_at_all)
READS_AND_WRITES(_shared) READS_AND_WRITES(_ordered) READS_AND_WRITES(_all_begin)
READS_AND_WRITES(_at_all_begin) READS_AND_WRITES(_ordered_begin)
#endif
#define COUNTED(name) MPI_##name##_c
#else
typedef int Number;
typedef int Displacement;
#define COUNTED(name) MPI_##name
#endif

#define NONE (-1L)
#define N(count) ((Number)(count))

struct entry { const char *name; long calls, bytes, done, received; };
static struct entry entries[200];

static struct entry *of(const char *name)
{
    struct entry *entry = entries;
    while (entry->name && strcmp(entry->name, name))
        entry++;
    entry->name = name;
    return entry;
}

static void note(const char *name, long bytes)
{
    struct entry *entry = of(name);
    entry->calls++;
    if (bytes != NONE)
        entry->bytes += bytes;
}

static void done(const char *name, long bytes)
{
    struct entry *entry = of(name);
    entry->done++;
    if (bytes != NONE)
        entry->received += bytes;
}

static void check(const char *name, int result)
{
    if (result != MPI_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", name, result);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void expect(int fact, const char *what)
{
    if (!fact) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* A function without, and one with a form for large counts. */
#define CALL(name, bytes, ...) (note("MPI_" #name, bytes), check(#name, MPI_##name(__VA_ARGS__)))
#define CALL_N(name, bytes, ...) (note("MPI_" #name, bytes), check(#name, COUNTED(name)(__VA_ARGS__)))

/* Between two looks at something: without it a slow rank makes another one call a million times. */
static int again(int is_done)
{
    if (!is_done)
        usleep(1000);
    return !is_done;
}

enum { MOST = 64 };
static int me, n, left, right;
static const MPI_Comm W = MPI_COMM_WORLD;

/* Bytes of datatypes, each used twice. Handles of types that the program makes are used again for others. */
static void datatypes(void)
{
    static char data[4096];
    const MPI_Datatype known[] = {MPI_BYTE, MPI_CHAR, MPI_SHORT, MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_INT64_T, MPI_FLOAT,
                                  MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_WCHAR, MPI_C_BOOL, MPI_2INT, MPI_DOUBLE_INT, MPI_PACKED};
    const int count = sizeof known / sizeof *known;
    for (int i = 0; i < 2 * count; i++) {
        int bytes;
        MPI_Type_size(known[i % count], &bytes);
        CALL_N(Send, 7L * bytes, data, N(7), known[i % count], MPI_PROC_NULL, 0, W);
    }
    for (int width = 1; width <= 4; width++) {
        MPI_Datatype made;
        MPI_Type_contiguous(width, MPI_DOUBLE, &made);
        MPI_Type_commit(&made);
        CALL_N(Send, 16L * width, data, N(2), made, MPI_PROC_NULL, 0, W);
        CALL_N(Send, 8L * width, data, N(1), made, MPI_PROC_NULL, 0, W);
        MPI_Type_free(&made);
    }
}

static void messages(void)
{
    static double out[MOST], in[MOST], attached[4096];
    MPI_Status status;
    MPI_Request request;
    int flag;

    MPI_Buffer_attach(attached, sizeof attached);
    CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 1, W, &request);
    CALL_N(Recv, 80, in, N(10), MPI_DOUBLE, left, 1, W, &status);
    CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_Isend", NONE);
    if (me % 2 == 0) {
        CALL_N(Send, 8, out, N(1), MPI_DOUBLE, me ^ 1, 2, W);
        CALL_N(Ssend, 12, out, N(3), MPI_FLOAT, me ^ 1, 3, W);
        CALL_N(Recv, 8, in, N(1), MPI_DOUBLE, MPI_ANY_SOURCE, 4, W, &status);
        expect(status.MPI_SOURCE == (me ^ 1), "source of a receive from any");
    } else {
        CALL_N(Recv, 8, in, N(1), MPI_DOUBLE, me ^ 1, MPI_ANY_TAG, W, MPI_STATUS_IGNORE);
        CALL_N(Recv, 12, in, N(3), MPI_FLOAT, me ^ 1, 3, W, MPI_STATUS_IGNORE);
        CALL_N(Bsend, 8, out, N(1), MPI_DOUBLE, me ^ 1, 4, W);
    }
    CALL_N(Irecv, 16, in, N(2), MPI_DOUBLE, left, 5, W, &request);
    CALL(Barrier, NONE, W);
    CALL_N(Rsend, 16, out, N(2), MPI_DOUBLE, right, 5, W);
    CALL(Wait, NONE, &request, &status), done("MPI_Irecv", 16);
    expect(request == MPI_REQUEST_NULL, "a completed request is null");
    CALL(Wait, NONE, &request, &status);
    CALL_N(Sendrecv, 24, out, N(3), MPI_DOUBLE, right, 6, in, N(3), MPI_DOUBLE, left, 6, W, &status);
    CALL_N(Sendrecv_replace, 32, out, N(4), MPI_DOUBLE, right, 7, left, 7, W, MPI_STATUS_IGNORE);
    CALL_N(Send, 40, out, N(5), MPI_DOUBLE, MPI_PROC_NULL, 0, W);
    CALL_N(Recv, 40, in, N(5), MPI_DOUBLE, MPI_PROC_NULL, 0, W, &status);

    /* Messages that are looked at first. */
    MPI_Message message;
    CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 11, W, &request);
    CALL(Probe, NONE, MPI_ANY_SOURCE, 11, W, &status);
    expect(status.MPI_SOURCE == left, "source of a probe");
    CALL_N(Recv, 8, in, N(1), MPI_DOUBLE, left, 11, W, MPI_STATUS_IGNORE);
    CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_Isend", NONE);
    CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 12, W, &request);
    do
        CALL(Iprobe, NONE, left, 12, W, &flag, &status);
    while (again(flag));
    CALL(Mprobe, NONE, left, MPI_ANY_TAG, W, &message, &status);
    CALL_N(Mrecv, 8, in, N(1), MPI_DOUBLE, &message, &status);
    CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_Isend", NONE);
    CALL_N(Isend, 16, out, N(2), MPI_DOUBLE, right, 13, W, &request);
    do
        CALL(Improbe, NONE, left, 13, W, &flag, &message, MPI_STATUS_IGNORE);
    while (again(flag));
    MPI_Request received;
    CALL_N(Imrecv, 24, in, N(3), MPI_DOUBLE, &message, &received);
    CALL(Wait, NONE, &received, &status), done("MPI_Imrecv", 16);
    CALL(Wait, NONE, &request, &status), done("MPI_Isend", NONE);
    CALL(Barrier, NONE, W);
    int bytes;
    MPI_Buffer_detach(attached, &bytes);
}

static void requests(void)
{
    static double out[8], in[8][8], attached[4096];
    MPI_Request r[8];
    MPI_Status s[8];
    int flag, index, indices[8], some;

    MPI_Buffer_attach(attached, sizeof attached);
    for (int i = 0; i < 4; i++)
        CALL_N(Irecv, 64, in[i], N(8), MPI_DOUBLE, left, 20 + i, W, &r[i]);
    CALL(Barrier, NONE, W);
    CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 20, W, &r[4]);
    CALL_N(Issend, 16, out, N(2), MPI_DOUBLE, right, 21, W, &r[5]);
    CALL_N(Ibsend, 24, out, N(3), MPI_DOUBLE, right, 22, W, &r[6]);
    CALL_N(Irsend, 32, out, N(4), MPI_DOUBLE, right, 23, W, &r[7]);
    CALL(Waitall, NONE, 8, r, s);
    for (int i = 0; i < 4; i++)
        done("MPI_Irecv", 8 * (i + 1));
    done("MPI_Isend", NONE), done("MPI_Issend", NONE), done("MPI_Ibsend", NONE), done("MPI_Irsend", NONE);
    CALL(Waitall, NONE, 8, r, MPI_STATUSES_IGNORE);

    /* One after the other, in the order in which they come. */
    for (int i = 0; i < 4; i++) {
        CALL_N(Irecv, 8, in[i], N(1), MPI_DOUBLE, MPI_ANY_SOURCE, 30 + i, W, &r[i]);
        CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 30 + i, W, &r[4 + i]);
    }
    for (int i = 0; i < 2; i++) {
        CALL(Waitany, NONE, 4, r, &index, s), done("MPI_Irecv", 8);
        expect(s[0].MPI_SOURCE == left, "source of a request");
    }
    do
        CALL(Testany, NONE, 4, r, &index, &flag, s);
    while (again(flag));
    done("MPI_Irecv", 8);
    do {
        CALL(Testsome, NONE, 4, r, &some, indices, s);
        for (int i = 0; i < some; i++)
            done("MPI_Irecv", 8);
    } while (again(some == MPI_UNDEFINED));
    int left_over = 4;
    while (left_over > 0) {
        CALL(Waitsome, NONE, 4, r + 4, &some, indices, MPI_STATUSES_IGNORE);
        left_over -= some;
        for (int i = 0; i < some; i++)
            done("MPI_Isend", NONE);
    }
    CALL(Waitany, NONE, 4, r, &index, MPI_STATUS_IGNORE);
    expect(index == MPI_UNDEFINED, "nothing to wait for");

    CALL_N(Irecv, 8, in, N(1), MPI_DOUBLE, left, 40, W, &r[0]);
    CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 40, W, &r[1]);
    do
        CALL(Test, NONE, &r[0], &flag, s);
    while (again(flag));
    done("MPI_Irecv", 8);
    do
        CALL(Testall, NONE, 2, r, &flag, MPI_STATUSES_IGNORE);
    while (again(flag));
    done("MPI_Isend", NONE);

    /* A request that nobody waits for, and one that is cancelled. */
    CALL_N(Isend, 8, out, N(1), MPI_DOUBLE, right, 41, W, &r[0]);
    CALL(Request_free, NONE, &r[0]);
    CALL_N(Recv, 8, in, N(1), MPI_DOUBLE, left, 41, W, MPI_STATUS_IGNORE);
    CALL_N(Irecv, 8, in, N(1), MPI_DOUBLE, left, 42, W, &r[0]);
    CALL(Cancel, NONE, &r[0]);
    CALL(Wait, NONE, &r[0], s), done("MPI_Irecv", NONE);

    /* Persistent ones, started twice. */
    CALL_N(Recv_init, 64, in[0], N(8), MPI_DOUBLE, left, 50, W, &r[0]);
    CALL_N(Recv_init, 64, in[1], N(8), MPI_DOUBLE, left, 51, W, &r[1]);
    CALL_N(Recv_init, 64, in[2], N(8), MPI_DOUBLE, left, 52, W, &r[2]);
    CALL_N(Recv_init, 64, in[3], N(8), MPI_DOUBLE, left, 53, W, &r[3]);
    CALL_N(Send_init, 8, out, N(1), MPI_DOUBLE, right, 50, W, &r[4]);
    CALL_N(Ssend_init, 16, out, N(2), MPI_DOUBLE, right, 51, W, &r[5]);
    CALL_N(Bsend_init, 24, out, N(3), MPI_DOUBLE, right, 52, W, &r[6]);
    CALL_N(Rsend_init, 32, out, N(4), MPI_DOUBLE, right, 53, W, &r[7]);
    for (int round = 0; round < 2; round++) {
        CALL(Startall, NONE, 4, r);
        CALL(Barrier, NONE, W);
        for (int i = 4; i < 8; i++)
            CALL(Start, NONE, &r[i]);
        memset(s, 0x5a, sizeof s);
        CALL(Waitall, NONE, 8, r, s);
        for (int i = 0; i < 4; i++)
            done("MPI_Startall", 8 * (i + 1)), done("MPI_Start", NONE);
    }
    for (int i = 0; i < 8; i++)
        CALL(Request_free, NONE, &r[i]);
    CALL(Barrier, NONE, W);
    int bytes;
    MPI_Buffer_detach(attached, &bytes);
}

/* The blocking form with its bytes, then the other one, waited for. */
#define COLLECTIVE(name, other, bytes, ...)                                                                    \
    do {                                                                                                       \
        MPI_Request request;                                                                                   \
        CALL_N(name, bytes, __VA_ARGS__);                                                                      \
        CALL_N(other, bytes, __VA_ARGS__, &request);                                                           \
        CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_" #other, NONE);                              \
    } while (0)

static void collectives(void)
{
    static int out[MOST * MOST], in[MOST * MOST];
    static Number counts[MOST], ones[MOST];
    static Displacement offsets[MOST], bytes_at[MOST];
    static MPI_Datatype types[MOST];
    const int total = n * (n + 1) / 2;
    MPI_Request request;

    for (int i = 0; i < n; i++) {
        counts[i] = i + 1, ones[i] = 1, offsets[i] = i * (i + 1) / 2;
        bytes_at[i] = 4 * i, types[i] = MPI_INT;
        out[i] = me * 100 + i;
    }
    CALL(Barrier, NONE, W);
    CALL(Ibarrier, NONE, W, &request);
    CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_Ibarrier", NONE);
    COLLECTIVE(Bcast, Ibcast, 12, in, N(3), MPI_INT, 1, W);
    COLLECTIVE(Gather, Igather, 4, out, N(1), MPI_INT, in, N(1), MPI_INT, 0, W);
    expect(me != 0 || in[n - 1] == (n - 1) * 100, "gather");
    /* What is not the root passes nothing that makes sense. */
    Number *counts_at_root = me == 0 ? counts : (Number *)8;
    Displacement *offsets_at_root = me == 0 ? offsets : (Displacement *)8;
    COLLECTIVE(Gatherv, Igatherv, 4 * (me + 1), out, counts[me], MPI_INT, in, counts_at_root, offsets_at_root,
               MPI_INT, 0, W);
    expect(me != 0 || in[total - 1] == (n - 1) * 100 + n - 1, "gatherv");
    COLLECTIVE(Scatter, Iscatter, 4, out, N(1), MPI_INT, in, N(1), MPI_INT, 0, W);
    COLLECTIVE(Scatterv, Iscatterv, 4 * (me + 1), out, counts_at_root, offsets_at_root, MPI_INT, in, counts[me],
               MPI_INT, 0, W);
    COLLECTIVE(Allgather, Iallgather, 4, out, N(1), MPI_INT, in, N(1), MPI_INT, W);
    COLLECTIVE(Allgather, Iallgather, 4, MPI_IN_PLACE, N(0), MPI_DATATYPE_NULL, in, N(1), MPI_INT, W);
    COLLECTIVE(Allgatherv, Iallgatherv, 4 * (me + 1), out, counts[me], MPI_INT, in, counts, offsets, MPI_INT, W);
    expect(in[total - 1] == (n - 1) * 100 + n - 1, "allgatherv");
    COLLECTIVE(Allgatherv, Iallgatherv, 4 * (me + 1), MPI_IN_PLACE, N(0), MPI_DATATYPE_NULL, in, counts, offsets,
               MPI_INT, W);
    COLLECTIVE(Alltoall, Ialltoall, 4 * n, out, N(1), MPI_INT, in, N(1), MPI_INT, W);
    static Displacement places[MOST];
    for (int i = 0; i < n; i++)
        places[i] = i;
    COLLECTIVE(Alltoallv, Ialltoallv, 4 * n, out, ones, places, MPI_INT, in, ones, places, MPI_INT, W);
    expect(in[n - 1] == (n - 1) * 100 + me, "alltoallv");
    COLLECTIVE(Alltoallv, Ialltoallv, 4 * n, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, ones, places, MPI_INT,
               W);
    COLLECTIVE(Alltoallw, Ialltoallw, 4 * n, out, ones, bytes_at, types, in, ones, bytes_at, types, W);
    COLLECTIVE(Allreduce, Iallreduce, 8, out, in, N(2), MPI_INT, MPI_SUM, W);
    COLLECTIVE(Allreduce, Iallreduce, 8, MPI_IN_PLACE, in, N(2), MPI_INT, MPI_SUM, W);
    COLLECTIVE(Reduce, Ireduce, 8, out, in, N(2), MPI_INT, MPI_SUM, 1, W);
    COLLECTIVE(Reduce_scatter, Ireduce_scatter, 4 * total, out, in, counts, MPI_INT, MPI_SUM, W);
    COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block, 4 * n, out, in, N(1), MPI_INT, MPI_SUM, W);
    COLLECTIVE(Scan, Iscan, 8, out, in, N(2), MPI_INT, MPI_SUM, W);
    COLLECTIVE(Exscan, Iexscan, 8, out, in, N(2), MPI_INT, MPI_SUM, W);

    /* Several at a time. Their arrays must live as long as they do. */
    MPI_Request many[16];
    for (int i = 0; i < 16; i++) {
        Number *own_counts = malloc(n * sizeof *own_counts);
        Displacement *own_places = malloc(n * sizeof *own_places);
        memcpy(own_counts, ones, n * sizeof *own_counts), memcpy(own_places, places, n * sizeof *own_places);
        CALL_N(Ialltoallv, 4 * n, out, own_counts, own_places, MPI_INT, in + i * n, own_counts, own_places, MPI_INT, W,
               &many[i]);
    }
    CALL(Waitall, NONE, 16, many, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 16; i++) {
        done("MPI_Ialltoallv", NONE);
        expect(in[i * n + n - 1] == (n - 1) * 100 + me, "one of many alltoallv");
    }
}

static void neighbours(void)
{
    static Number ones[2] = {1, 1}, own[2] = {1, 2};
    static Displacement places[2] = {0, 1};
    static MPI_Aint addresses[2] = {0, 4};
    static MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    int out[4] = {me, me, me, me}, in[8];
    int one_dimension[1] = {n}, periodic[1] = {1}, keep[1] = {1};
    MPI_Comm ring, line, graph, directed, adjacent;

    CALL(Cart_create, NONE, W, 1, one_dimension, periodic, 0, &ring);
    CALL(Comm_set_name, NONE, ring, "ring");
    COLLECTIVE(Neighbor_allgather, Ineighbor_allgather, 4, out, N(1), MPI_INT, in, N(1), MPI_INT, ring);
    COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv, 4, out, N(1), MPI_INT, in, ones, places, MPI_INT, ring);
    COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall, 4, out, N(1), MPI_INT, in, N(1), MPI_INT, ring);
    COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv, NONE, out, ones, places, MPI_INT, in, ones, places, MPI_INT,
               ring);
    expect(in[0] == left && in[1] == right, "neighbours in the ring");
    COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw, NONE, out, ones, addresses, types, in, ones, addresses,
               types, ring);
    CALL(Cart_sub, NONE, ring, keep, &line);
    CALL(Barrier, NONE, line);

    /* A ring in which each process knows only one side: one destination, one source. */
    CALL(Dist_graph_create_adjacent, NONE, W, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
         &adjacent);
    COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv, NONE, out, own, places, MPI_INT, in, own, places, MPI_INT,
               adjacent);
    expect(in[0] == left, "neighbours in the directed ring");
    int degree = 1;
    CALL(Dist_graph_create, NONE, W, 1, &me, &degree, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &directed);
    COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv, 4, out, N(1), MPI_INT, in, own, places, MPI_INT, directed);
    int index[MOST], edges[2 * MOST];
    for (int i = 0; i < n; i++)
        index[i] = 2 * (i + 1), edges[2 * i] = (i + n - 1) % n, edges[2 * i + 1] = (i + 1) % n;
    CALL(Graph_create, NONE, W, n, index, edges, 0, &graph);
    COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv, NONE, out, ones, places, MPI_INT, in, ones, places, MPI_INT,
               graph);
    CALL(Comm_free, NONE, &ring), CALL(Comm_free, NONE, &line), CALL(Comm_free, NONE, &graph);
    CALL(Comm_free, NONE, &directed), CALL(Comm_free, NONE, &adjacent);
}

static void communicators(void)
{
    int one = 1, sum;
    MPI_Comm twin, half, some, node, later, pair, inter, merged;
    MPI_Request request;
    MPI_Group world, group;

    CALL(Comm_dup, NONE, W, &twin);
    CALL(Comm_dup_with_info, NONE, twin, MPI_INFO_NULL, &later);
    CALL(Comm_disconnect, NONE, &later);
    CALL(Comm_idup, NONE, twin, &later, &request);
    CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_Comm_idup", NONE);
    CALL(Barrier, NONE, later);
    CALL(Comm_split, NONE, W, me % 2, -me, &half);
    CALL(Comm_set_name, NONE, half, me % 2 ? "odd" : "even");
    /* As often as the half has members: their numbers must not meet those of the other half. */
    for (int i = 0; i <= me % 2; i++)
        CALL_N(Allreduce, 4, &one, &sum, N(1), MPI_INT, MPI_SUM, half);
    expect(sum == (n + 1 - me % 2) / 2, "ranks of a half");
    CALL(Comm_split, NONE, half, me < 2 ? 0 : MPI_UNDEFINED, 0, &some);
    expect((some == MPI_COMM_NULL) == (me >= 2), "a split that leaves some out");
    if (me < 2)
        CALL(Comm_free, NONE, &some);
    CALL(Comm_split_type, NONE, W, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    CALL(Barrier, NONE, node);
    CALL(Comm_free, NONE, &node);

    int members[2] = {0, 1};
    MPI_Comm_group(W, &world);
    MPI_Group_incl(world, 2, members, &group);
    CALL(Comm_create, NONE, W, group, &pair);
    if (me < 2) {
        CALL(Barrier, NONE, pair);
        CALL(Comm_free, NONE, &pair);
        for (int i = 0; i < 2; i++) {
            CALL(Comm_create_group, NONE, W, group, 77, &pair);
            CALL(Barrier, NONE, pair);
            CALL(Comm_free, NONE, &pair);
        }
    }
    MPI_Group_free(&group), MPI_Group_free(&world);

    /* The even ones and the odd ones. */
    CALL(Intercomm_create, NONE, half, 0, W, me % 2 ? (n - 1) / 2 * 2 : (n - 2) / 2 * 2 + 1, 5, &inter);
    CALL(Barrier, NONE, inter);
    COLLECTIVE(Allreduce, Iallreduce, 4, &one, &sum, N(1), MPI_INT, MPI_SUM, inter);
    expect(sum == (n + me % 2) / 2, "ranks of the other half");
    static int out[MOST], in[MOST];
    static Number ones[MOST];
    static Displacement places[MOST];
    const int others = (n + me % 2) / 2;
    for (int i = 0; i < others; i++)
        ones[i] = 1, places[i] = i, out[i] = me;
    COLLECTIVE(Alltoallv, Ialltoallv, 4 * others, out, ones, places, MPI_INT, in, ones, places, MPI_INT, inter);
    CALL(Comm_dup, NONE, inter, &some);
    CALL(Comm_free, NONE, &some);
    CALL(Intercomm_merge, NONE, inter, me % 2, &merged);
    CALL(Barrier, NONE, merged);

    /* Handles that come again. */
    for (int i = 0; i < 20; i++) {
        MPI_Comm brief;
        CALL(Comm_dup, NONE, merged, &brief);
        for (int j = 0; j <= i % 3; j++)
            CALL_N(Bcast, 4, &one, N(1), MPI_INT, 0, brief);
        CALL_N(Send, 4, &one, N(1), MPI_INT, MPI_PROC_NULL, 0, brief);
        CALL(Comm_free, NONE, &brief);
    }
    CALL(Barrier, NONE, MPI_COMM_SELF);
    CALL(Comm_free, NONE, &merged), CALL(Comm_free, NONE, &inter), CALL(Comm_free, NONE, &half);
    CALL(Comm_free, NONE, &later), CALL(Comm_free, NONE, &twin);
}

static void windows(void)
{
    long *memory, value = me;
    MPI_Win win, shared;
    MPI_Group all, partners;
    const int ranks[2] = {left, right};
    const int few = n > 2 ? 2 : 1;
#ifdef OPEN_MPI
    /* It has no window for memory of the program's own where several threads may call MPI. */
    CALL(Win_allocate, NONE, 4 * sizeof *memory, sizeof *memory, MPI_INFO_NULL, W, &memory, &win);
    memset(memory, 0, 4 * sizeof *memory);
#else
    static long own[4];
    memory = own;
    CALL(Win_create, NONE, memory, sizeof own, sizeof *memory, MPI_INFO_NULL, W, &win);
#endif
    CALL(Win_fence, NONE, 0, win);
    MPI_Put(&value, 1, MPI_LONG, right, 0, 1, MPI_LONG, win);
    CALL(Win_fence, NONE, 0, win);
    expect(memory[0] == left, "what the left one put");
    CALL(Win_lock, NONE, MPI_LOCK_SHARED, right, 0, win);
    MPI_Put(&value, 1, MPI_LONG, right, 1, 1, MPI_LONG, win);
    CALL(Win_flush, NONE, right, win), CALL(Win_flush_local, NONE, right, win);
    CALL(Win_unlock, NONE, right, win);
    CALL(Win_lock_all, NONE, 0, win);
    CALL(Win_flush_all, NONE, win), CALL(Win_flush_local_all, NONE, win);
    CALL(Win_unlock_all, NONE, win);
    MPI_Comm_group(W, &all), MPI_Group_incl(all, few, ranks, &partners);
    for (int tests = 0; tests < 2; tests++) {
        CALL(Win_post, NONE, partners, 0, win), CALL(Win_start, NONE, partners, 0, win);
        MPI_Put(&value, 1, MPI_LONG, right, 2, 1, MPI_LONG, win);
        CALL(Win_complete, NONE, win);
        int flag = 0;
        if (tests)
            do
                CALL(Win_test, NONE, win, &flag);
            while (again(flag));
        else
            CALL(Win_wait, NONE, win);
    }
    MPI_Group_free(&all), MPI_Group_free(&partners);
    CALL(Win_free, NONE, &win);
    long *shares;
    CALL(Win_allocate_shared, NONE, sizeof *shares, sizeof *shares, MPI_INFO_NULL, W, &shares, &shared);
    CALL(Win_free, NONE, &shared);

    MPI_Request request;
    int got, flag;
    CALL_N(Irecv, 4, &got, N(1), MPI_INT, left, 77, W, &request);
    CALL_N(Send, 4, &me, N(1), MPI_INT, right, 77, W);
    do
        CALL(Request_get_status, NONE, request, &flag, MPI_STATUS_IGNORE);
    while (again(flag));
    CALL(Wait, NONE, &request, MPI_STATUS_IGNORE), done("MPI_Irecv", NONE);
}

static void files(const char *prefix)
{
    char name[4096];
    long out = me, in = -1;
    MPI_File file;
    snprintf(name, sizeof name, "%s.file", prefix);
    CALL(File_open, NONE, W, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    CALL(File_set_size, NONE, file, 0), CALL(File_preallocate, NONE, file, 8 * (n + 1));
    CALL(File_set_view, NONE, file, 0, MPI_LONG, MPI_LONG, "native", MPI_INFO_NULL);
    CALL_N(File_write_at, 8, file, me, &out, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL_N(File_write_at_all, 8, file, me, &out, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL(File_sync, NONE, file), CALL(Barrier, NONE, W), CALL(File_sync, NONE, file);
    CALL_N(File_read_at, 8, file, left, &in, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    expect(in == left, "what the left one wrote");
    CALL_N(File_read_at_all, 8, file, right, &in, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    expect(in == right, "what the right one wrote");
    CALL_N(File_read, 8, file, &in, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL_N(File_read_all, 8, file, &in, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    MPI_File_seek(file, me, MPI_SEEK_SET);
    CALL_N(File_write, 8, file, &out, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    MPI_File_seek(file, me, MPI_SEEK_SET);
    CALL_N(File_write_all, 8, file, &out, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL_N(File_write_all_begin, 8, file, &out, N(1), MPI_LONG);
    CALL(File_write_all_end, NONE, file, &out, MPI_STATUS_IGNORE);
    CALL_N(File_read_at_all_begin, 8, file, me, &in, N(1), MPI_LONG);
    CALL(File_read_at_all_end, NONE, file, &in, MPI_STATUS_IGNORE);
    CALL_N(File_write_at_all_begin, 8, file, me, &out, N(1), MPI_LONG);
    CALL(File_write_at_all_end, NONE, file, &out, MPI_STATUS_IGNORE);
    CALL(Barrier, NONE, W);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    CALL_N(File_read_all_begin, 8, file, &in, N(1), MPI_LONG);
    CALL(File_read_all_end, NONE, file, &in, MPI_STATUS_IGNORE);
    CALL_N(File_write_ordered, 8, file, &out, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL_N(File_write_shared, 8, file, &out, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL(Barrier, NONE, W);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    CALL_N(File_read_ordered, 8, file, &in, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL_N(File_read_shared, 8, file, &in, N(1), MPI_LONG, MPI_STATUS_IGNORE);
    CALL(Barrier, NONE, W);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    CALL_N(File_write_ordered_begin, 8, file, &out, N(1), MPI_LONG);
    CALL(File_write_ordered_end, NONE, file, &out, MPI_STATUS_IGNORE);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    CALL_N(File_read_ordered_begin, 8, file, &in, N(1), MPI_LONG);
    CALL(File_read_ordered_end, NONE, file, &in, MPI_STATUS_IGNORE);
    CALL(File_close, NONE, &file);
}

int main(int argc, char **argv)
{
    int provided;
    if (argc != 2)
        return 2;
    CALL(Init_thread, NONE, &argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(W, &me), MPI_Comm_size(W, &n);
    left = (me + n - 1) % n, right = (me + 1) % n;
    expect(n % 2 == 0 && n <= MOST, "an even number of ranks");
    messages();
    datatypes();
    requests();
    collectives();
    neighbours();
    communicators();
    windows();
    files(argv[1]);
#ifdef LARGE
    /* More than an int has: refused where the library takes an int, sent nowhere where it does not. */
    int small = 0;
    MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);
    note("MPI_Send", (1L << 33));
    int result = COUNTED(Send)(&small, (Number)(1L << 33), MPI_CHAR, MPI_PROC_NULL, 0, W);
    expect(result == MPI_SUCCESS || result == MPI_ERR_COUNT, "a count beyond int");
    if (result != MPI_SUCCESS)
        of("MPI_Send")->calls--, of("MPI_Send")->bytes -= 1L << 33;
#endif
    CALL(Finalize, NONE);

    char path[4096];
    snprintf(path, sizeof path, "%s.%d", argv[1], me);
    FILE *file = fopen(path, "w");
    if (!file)
        return 1;
    for (struct entry *entry = entries; entry->name; entry++) {
        fprintf(file, "call %s %ld %ld\n", entry->name, entry->calls, entry->bytes);
        if (entry->done)
            fprintf(file, "done %s %ld %ld\n", entry->name, entry->done, entry->received);
    }
    return fclose(file) != 0;
}
