/* Programs with communicators of their own. */
#include "truth.h"
#include <stdio.h>
#include <string.h>

static const struct settings *s = &settings;

static struct circle split_named(struct circle *parent, const char *kind, int colour)
{
    char name[24];
    snprintf(name, sizeof name, "%s-%d", kind, colour);
    return split(parent, colour, name);
}

/* Two rows; columns of two. */
static void grid(void)
{
    int columns = s->size / 2;
    struct circle row = split_named(&world, "row", s->rank / columns);
    struct circle column = split_named(&world, "column", s->rank % columns);
    for (int step = 0; step < s->steps; step++) {
        begin_step(step);
        work("work", s->work_ns, delay_of(step));
        allreduce(&row);
        allreduce(&column);
        end_step();
    }
    leave(&row);
    leave(&column);
}

static void halves(void)
{
    struct circle half = split_named(&world, "half", s->rank / (s->size / 2));
    for (int step = 0; step < s->steps; step++) {
        begin_step(step);
        work("work", s->work_ns, delay_of(step));
        allreduce(&half);
        if (step % 5 == 4 || step == s->steps - 1) barrier(&world);
        end_step();
    }
    leave(&half);
}

/* Halves; the first two ranks of a half and the rest of it; the first ranks of both halves; an intercommunicator of
 * the halves, over which each rank talks with its partner. */
static void nested(void)
{
    int count = s->size / 2, side = s->rank / count, place = s->rank % count;
    int remote[MAX_RANKS], heads[2] = {0, count};
    for (int i = 0; i < count; i++) remote[i] = (1 - side) * count + i;
    struct circle half = split_named(&world, "half", side);
    struct circle part = split_named(&half, "part", 2 * side + (place > 1));
    struct circle head = {0};
    if (place == 0) head = circle_of_group(heads, 2, "heads");
    struct circle bridge = between(&half, remote[0], remote, count, "bridge");
    for (int step = 0; step < s->steps; step++) {
        begin_step(step);
        work("work", s->work_ns, delay_of(step));
        allreduce(&part);
        cross(bridge.comm, place, remote[place], side == 0);
        if (place == 0) allreduce(&head);
        allreduce(&half);
        if (step % 5 == 4 || step == s->steps - 1) barrier(&bridge);
        end_step();
    }
    leave(&bridge);
    if (place == 0) leave(&head);
    leave(&part);
    leave(&half);
}

bool run_communicators(const char *name)
{
    if (!strcmp(name, "grid")) grid();
    else if (!strcmp(name, "halves")) halves();
    else if (!strcmp(name, "nested")) nested();
    else return false;
    return true;
}
