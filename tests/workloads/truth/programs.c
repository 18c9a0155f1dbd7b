/* Programs in which all ranks have the same role, and pipelines. */
#include "truth.h"
#include <string.h>

static const struct settings *s = &settings;

/* Every so many steps, and in the last one. */
static bool is_end_of(int steps, int step)
{
    return step % steps == steps - 1 || step == s->steps - 1;
}

static void allreduce_step(int step)
{
    work("work", s->work_ns, delay_of(step));
    allreduce(&world);
}

/* The guilty rank sends late to the next one, which sends to the one after it, to the last. */
static void chain_step(int step)
{
    work("setup", s->work_ns, delay_of(step));
    if (s->rank > s->guilty) receive_from(s->rank - 1);
    if (s->rank >= s->guilty && s->rank + 1 < s->size) send_to(s->rank + 1, step);
    barrier(&world);
}

/* The guilty rank delays the next one before equal work, and both are late at the barrier. */
static void displaced_step(int step)
{
    int victim = (s->guilty + 1) % s->size;
    if (s->rank == s->guilty) {
        work("setup", 0, delay_of(step));
        send_to(victim, step);
    } else if (s->rank == victim) {
        receive_from(s->guilty);
    }
    work("work", s->work_ns, 0);
    barrier(&world);
}

static void stencil_step(int step)
{
    work("update", s->work_ns, delay_of(step));
    if (!strcmp(s->program, "stencil")) exchange_requests(0);
    else if (!strcmp(s->program, "sendrecv")) exchange_sendrecv();
    else if (!strcmp(s->program, "persistent")) exchange_persistent();
    else if (!strcmp(s->program, "large")) exchange_large();
    else exchange_requests(s->inner_ns);
    if (is_end_of(10, step)) allreduce(&world);
}

static void pipeline_step(int step)
{
    if (s->rank > 0) receive_from(s->rank - 1);
    work("stage", s->work_ns, delay_of(step));
    if (s->rank + 1 < s->size) send_to(s->rank + 1, step);
}

static void ring_step(int step)
{
    work("work", s->work_ns, delay_of(step));
    shift();
}

/* The root is the guilty rank. */
static void root_step(int step)
{
    work("work", s->work_ns, delay_of(step));
    broadcast(&world, s->guilty);
    allreduce(&world);
}

static void reduce_step(int step)
{
    work("work", s->work_ns, delay_of(step));
    reduce(&world, 0);
    broadcast(&world, 0);
}

static const struct {
    const char *name;
    void (*step)(int step);
} programs[] = {
    {"allreduce", allreduce_step}, {"chain", chain_step},       {"displaced", displaced_step},
    {"stencil", stencil_step},     {"sendrecv", stencil_step},  {"persistent", stencil_step},
    {"large", stencil_step},       {"overlap", stencil_step},   {"pipeline", pipeline_step},
    {"ring", ring_step},           {"root", root_step},         {"reduce", reduce_step},
    {"startup", allreduce_step},
};

bool run_program(const char *name)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (strcmp(programs[i].name, name)) continue;
        /* Ranks load for 4, 8, 12 ... steps. */
        if (!strcmp(name, "startup")) {
            work("load", 4 * (s->rank + 1) * s->work_ns, 0);
            barrier(&world);
        }
        for (int step = 0; step < s->steps; step++) {
            begin_step(step);
            programs[i].step(step);
            end_step();
        }
        free_persistent();
        return true;
    }
    return false;
}
