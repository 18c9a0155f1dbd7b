/* A program in which given ranks are slow, and which logs by how much. Interface of its files.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Ranks are those of MPI_COMM_WORLD. */
#ifndef TRUTH_H
#define TRUTH_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANKS = 64, MAX_PARTNERS = 8 };

/* Which ranks are delayed, and in which steps. */
enum plan { PLAN_NONE, PLAN_RANK, PLAN_NODE, PLAN_TURNS, PLAN_TWO, PLAN_PHASE };

struct settings {
    const char *program, *log_folder;
    const char *reads; /* File that ranks read. */
    const char *group; /* cgroup.procs of a group in which reads are slow. */
    enum plan plan;
    int rank, size;
    int nodes;  /* Rank r is on node r modulo this. */
    int guilty; /* A rank, or a node with PLAN_NODE. */
    int steps;
    int64_t work_ns, excess_ns, inner_ns;
    double noise; /* Standard deviation, as a share of the work. */
    uint64_t seed;
};
extern struct settings settings;

/* A communicator, with the ranks for which its collectives wait. */
struct circle {
    MPI_Comm comm;
    char name[24]; /* The same in all members; no other communicator has it. */
    int members[MAX_RANKS], count;
    int calls; /* Collectives so far. */
};
extern struct circle world;

/* What the log has of a call. */
struct call {
    const char *function;
    int64_t enter, exit;
    int step;
    int sends[MAX_PARTNERS], send_count;       /* Messages sent, by destination. */
    int posts[MAX_PARTNERS], post_count;       /* Receives posted, by source. */
    int receives[MAX_PARTNERS], receive_count; /* Messages that this call completes, by source. */
    bool is_synchronous;                       /* The send waits for its receive. */
    const char *circle;                        /* Collectives only. */
    int number, waits_for[MAX_RANKS], wait_count;
};

/* clock.c */
int64_t now(void);
/* Gives this rank a core as soon as it needs one. To be called after MPI_Init. */
void run_first(void);
int64_t sleep_until(int64_t ns);
/* Excess of this rank in a step by the plan. */
int64_t delay_of(int step);
/* Works in a range, `ns` with noise and then the delay. */
void work(const char *label, int64_t ns, int64_t delay_ns);
/* The same in parts, for other work than sleep. */
int64_t begin_work(const char *label);
void end_work(const char *label, int64_t begin, int64_t planted_ns);
void begin_step(int step);
void end_step(void);
int current_step(void);

/* log.c */
void log_call(const struct call *call);
/* `planted_ns` is the measured length of the delay, which is at the end of the range. */
void log_range(const char *label, int step, int64_t begin, int64_t end, int64_t planted_ns);
void write_log(int64_t start, int64_t end);

/* messages.c: calls that are logged */
void send_to(int rank, int value);
int receive_from(int rank);
/* The source goes to `source`. Without `asks_status` it comes from the message. */
int receive_any(bool asks_status, int *source);
/* Messages with both neighbours of a ring. */
void exchange_requests(int64_t inner_ns);
void exchange_sendrecv(void);
void exchange_large(void);
void exchange_persistent(void);
void free_persistent(void);
/* Sends to the right and receives from the left. */
void shift(void);
/* Messages both ways over an intercommunicator. In its remote group, `partner` has the rank `peer`. */
void cross(MPI_Comm between, int peer, int partner, bool sends_first);

/* collectives.c: calls that are logged */
void allreduce(struct circle *circle);
void barrier(struct circle *circle);
void broadcast(struct circle *circle, int root);
void reduce(struct circle *circle, int root);
void initialise(int *argc, char ***argv);
void finish(void);
/* Circle of the ranks with the same colour. */
struct circle split(struct circle *parent, int colour, const char *name);
struct circle circle_of_group(const int *ranks, int count, const char *name);
struct circle between(struct circle *own, int remote_leader, const int *remote, int count, const char *name);
void leave(struct circle *circle);

/* programs.c, masters.c, communicators.c, causes.c: false if they have no such program */
bool run_program(const char *name);
bool run_master(const char *name);
bool run_communicators(const char *name);
bool run_causes(const char *name);

/* causes.c: gives this rank a core of its own, if the program is one of causes. To be called after MPI_Init. */
bool needs_own_cores(const char *name);

#endif
