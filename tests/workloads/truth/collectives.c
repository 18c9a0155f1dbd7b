/* Collectives and communicators, with a line in the log for each call. */
#include "truth.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct circle world;

static struct call enter(const char *function)
{
    return (struct call){.function = function, .enter = now()};
}

/* Logs a collective that waited for `count` ranks; its exit is known. */
static void met(struct call *call, const char *name, int number, const int *ranks, int count)
{
    call->circle = name;
    call->number = number;
    memcpy(call->waits_for, ranks, (size_t)count * sizeof *ranks);
    call->wait_count = count;
    log_call(call);
}

/* Names outlive the circles, because the log refers to them. */
static const char *kept_name(const struct circle *circle)
{
    return circle == &world ? world.name : strdup(circle->name);
}

static void met_in(struct call *call, struct circle *circle, const int *ranks, int count)
{
    call->exit = now();
    met(call, kept_name(circle), circle->calls++, ranks, count);
}

void allreduce(struct circle *circle)
{
    int own = settings.rank, sum;
    struct call call = enter("MPI_Allreduce");
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, circle->comm);
    met_in(&call, circle, circle->members, circle->count);
}

void barrier(struct circle *circle)
{
    struct call call = enter("MPI_Barrier");
    MPI_Barrier(circle->comm);
    met_in(&call, circle, circle->members, circle->count);
}

/* In a tree of ranks, some wait for others than the root. A reader of the log skips ranks that entered after this one had
 * left. */
void broadcast(struct circle *circle, int root)
{
    int value = settings.rank;
    struct call call = enter("MPI_Bcast");
    MPI_Bcast(&value, 1, MPI_INT, root, circle->comm);
    met_in(&call, circle, circle->members, circle->count);
}

void reduce(struct circle *circle, int root)
{
    int own = settings.rank, sum;
    struct call call = enter("MPI_Reduce");
    MPI_Reduce(&own, &sum, 1, MPI_INT, MPI_SUM, root, circle->comm);
    met_in(&call, circle, circle->members, circle->count);
}

static void all_ranks(int *ranks)
{
    for (int rank = 0; rank < settings.size; rank++) ranks[rank] = rank;
}

static void make_world(void)
{
    world.comm = MPI_COMM_WORLD;
    strcpy(world.name, "world");
    all_ranks(world.members);
    world.count = settings.size;
}

void initialise(int *argc, char ***argv)
{
    struct call call = enter("MPI_Init");
    MPI_Init(argc, argv);
    call.exit = now();
    MPI_Comm_rank(MPI_COMM_WORLD, &settings.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &settings.size);
    if (settings.size > MAX_RANKS || settings.size < 2) {
        fprintf(stderr, "%d ranks: this program takes 2 to %d\n", settings.size, MAX_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    make_world();
    met(&call, "init", 0, world.members, world.count);
}

void finish(void)
{
    struct call call = enter("MPI_Finalize");
    MPI_Finalize();
    call.exit = now();
    met(&call, "finalize", 0, world.members, world.count);
}

/* Fills the members of an intracommunicator. */
static void list_members(struct circle *circle)
{
    MPI_Group group, whole;
    int places[MAX_RANKS];
    MPI_Comm_group(circle->comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &whole);
    MPI_Group_size(group, &circle->count);
    all_ranks(places);
    MPI_Group_translate_ranks(group, circle->count, places, whole, circle->members);
    MPI_Group_free(&group);
    MPI_Group_free(&whole);
}

struct circle split(struct circle *parent, int colour, const char *name)
{
    struct circle circle = {0};
    struct call call = enter("MPI_Comm_split");
    MPI_Comm_split(parent->comm, colour, settings.rank, &circle.comm);
    met_in(&call, parent, parent->members, parent->count);
    snprintf(circle.name, sizeof circle.name, "%s", name);
    list_members(&circle);
    return circle;
}

struct circle circle_of_group(const int *ranks, int count, const char *name)
{
    struct circle circle = {0};
    MPI_Group whole, group;
    MPI_Comm_group(MPI_COMM_WORLD, &whole);
    MPI_Group_incl(whole, count, ranks, &group);
    struct call call = enter("MPI_Comm_create_group");
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &circle.comm);
    call.exit = now();
    snprintf(circle.name, sizeof circle.name, "%s", name);
    met(&call, strdup(name), circle.calls++, ranks, count);
    MPI_Group_free(&group);
    MPI_Group_free(&whole);
    list_members(&circle);
    return circle;
}

struct circle between(struct circle *own, int remote_leader, const int *remote, int count, const char *name)
{
    struct circle circle = {0};
    struct call call = enter("MPI_Intercomm_create");
    MPI_Intercomm_create(own->comm, 0, MPI_COMM_WORLD, remote_leader, 0, &circle.comm);
    snprintf(circle.name, sizeof circle.name, "%s", name);
    memcpy(circle.members, remote, (size_t)count * sizeof *remote);
    circle.count = count;
    met_in(&call, &circle, remote, count);
    return circle;
}

void leave(struct circle *circle)
{
    struct call call = enter("MPI_Comm_free");
    MPI_Comm_free(&circle->comm);
    met_in(&call, circle, NULL, 0);
}
