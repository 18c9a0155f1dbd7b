/* Messages, with a line in the log for each call. All are on MPI_COMM_WORLD unless a communicator is given. */
#include "truth.h"
#include <stdlib.h>

enum { LARGE_BYTES = 1 << 20 };

static MPI_Request persistent[4];
static int persistent_values[4];
static bool has_persistent;

static struct call enter(const char *function)
{
    return (struct call){.function = function, .enter = now()};
}

static void leave_call(struct call *call)
{
    call->exit = now();
    log_call(call);
}

static void add(int *ranks, int *count, int rank)
{
    if (*count == MAX_PARTNERS) abort();
    ranks[(*count)++] = rank;
}

static void adds_send(struct call *call, int rank) { add(call->sends, &call->send_count, rank); }
static void adds_post(struct call *call, int rank) { add(call->posts, &call->post_count, rank); }
static void adds_receipt(struct call *call, int rank) { add(call->receives, &call->receive_count, rank); }

static int left(void) { return (settings.rank + settings.size - 1) % settings.size; }
static int right(void) { return (settings.rank + 1) % settings.size; }

void send_to(int rank, int value)
{
    int message[2] = {value, settings.rank};
    struct call call = enter("MPI_Send");
    MPI_Send(message, 2, MPI_INT, rank, 0, MPI_COMM_WORLD);
    adds_send(&call, rank);
    leave_call(&call);
}

int receive_from(int rank)
{
    int message[2];
    MPI_Status status;
    struct call call = enter("MPI_Recv");
    MPI_Recv(message, 2, MPI_INT, rank, 0, MPI_COMM_WORLD, &status);
    adds_post(&call, rank);
    adds_receipt(&call, rank);
    leave_call(&call);
    return message[0];
}

int receive_any(bool asks_status, int *source)
{
    int message[2];
    MPI_Status status;
    struct call call = enter("MPI_Recv");
    MPI_Recv(message, 2, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, asks_status ? &status : MPI_STATUS_IGNORE);
    *source = message[1];
    adds_post(&call, *source);
    adds_receipt(&call, *source);
    leave_call(&call);
    return message[0];
}

static MPI_Request post_receive(void *into, int bytes, int rank)
{
    MPI_Request request;
    struct call call = enter("MPI_Irecv");
    MPI_Irecv(into, bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, &request);
    adds_post(&call, rank);
    leave_call(&call);
    return request;
}

static MPI_Request start_send(const void *from, int bytes, int rank)
{
    MPI_Request request;
    struct call call = enter("MPI_Isend");
    MPI_Isend(from, bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, &request);
    adds_send(&call, rank);
    leave_call(&call);
    return request;
}

static void wait_all(MPI_Request *requests, int count, const int *sources, int source_count)
{
    struct call call = enter("MPI_Waitall");
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < source_count; i++) adds_receipt(&call, sources[i]);
    leave_call(&call);
}

void exchange_requests(int64_t inner_ns)
{
    int from[2], own = settings.rank, near[2] = {left(), right()};
    MPI_Request requests[4];
    for (int i = 0; i < 2; i++) requests[i] = post_receive(&from[i], sizeof from[i], near[i]);
    for (int i = 0; i < 2; i++) requests[2 + i] = start_send(&own, sizeof own, near[i]);
    if (inner_ns > 0) work("inner", inner_ns, 0);
    wait_all(requests, 4, near, 2);
}

void exchange_sendrecv(void)
{
    int from, own = settings.rank, near[2] = {left(), right()};
    for (int i = 0; i < 2; i++) {
        int to = near[i], source = near[1 - i];
        struct call call = enter("MPI_Sendrecv");
        MPI_Sendrecv(&own, 1, MPI_INT, to, i, &from, 1, MPI_INT, source, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        adds_send(&call, to);
        adds_post(&call, source);
        adds_receipt(&call, source);
        leave_call(&call);
    }
}

/* Larger than any eager limit: each send lasts until its receive is posted. */
void exchange_large(void)
{
    static char from[2][LARGE_BYTES], own[LARGE_BYTES];
    int near[2] = {left(), right()};
    MPI_Request requests[2];
    for (int i = 0; i < 2; i++) requests[i] = post_receive(from[i], LARGE_BYTES, near[i]);
    for (int i = 0; i < 2; i++) {
        struct call call = enter("MPI_Send");
        MPI_Send(own, LARGE_BYTES, MPI_BYTE, near[i], 0, MPI_COMM_WORLD);
        adds_send(&call, near[i]);
        call.is_synchronous = true;
        leave_call(&call);
    }
    wait_all(requests, 2, near, 2);
}

static void make_persistent(void)
{
    int near[2] = {left(), right()};
    for (int i = 0; i < 2; i++) {
        struct call call = enter("MPI_Recv_init");
        MPI_Recv_init(&persistent_values[i], 1, MPI_INT, near[i], 0, MPI_COMM_WORLD, &persistent[i]);
        leave_call(&call);
        call = enter("MPI_Send_init");
        MPI_Send_init(&persistent_values[2 + i], 1, MPI_INT, near[i], 0, MPI_COMM_WORLD, &persistent[2 + i]);
        leave_call(&call);
    }
    has_persistent = true;
}

void exchange_persistent(void)
{
    int near[2] = {left(), right()};
    if (!has_persistent) make_persistent();
    struct call call = enter("MPI_Startall");
    MPI_Startall(4, persistent);
    for (int i = 0; i < 2; i++) {
        adds_post(&call, near[i]);
        adds_send(&call, near[i]);
    }
    leave_call(&call);
    wait_all(persistent, 4, near, 2);
}

void free_persistent(void)
{
    for (int i = 0; has_persistent && i < 4; i++) {
        struct call call = enter("MPI_Request_free");
        MPI_Request_free(&persistent[i]);
        leave_call(&call);
    }
}

void shift(void)
{
    int own = settings.rank;
    MPI_Request request = start_send(&own, sizeof own, right());
    int from[2], source = left();
    struct call call = enter("MPI_Recv");
    MPI_Recv(from, 1, MPI_INT, source, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    adds_post(&call, source);
    adds_receipt(&call, source);
    leave_call(&call);
    wait_all(&request, 1, NULL, 0);
}

/* `peer` is the rank in the remote group of `between`, `partner` the same process in the world. */
void cross(MPI_Comm between, int peer, int partner, bool sends_first)
{
    int own = settings.rank, from;
    for (int turn = 0; turn < 2; turn++) {
        if ((turn == 0) == sends_first) {
            struct call call = enter("MPI_Send");
            MPI_Send(&own, 1, MPI_INT, peer, 0, between);
            adds_send(&call, partner);
            leave_call(&call);
        } else {
            struct call call = enter("MPI_Recv");
            MPI_Recv(&from, 1, MPI_INT, peer, 0, between, MPI_STATUS_IGNORE);
            adds_post(&call, partner);
            adds_receipt(&call, partner);
            leave_call(&call);
        }
    }
}
