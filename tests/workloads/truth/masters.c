/* Programs in which rank 0 hands out tasks and the others work. */
#include "truth.h"
#include <string.h>

static const struct settings *s = &settings;

enum { STOP = -1 };

/* In each step every worker gets one task, and the master waits for all results. */
static void rounds(bool asks_status, bool is_master_busy)
{
    for (int step = 0; step < s->steps; step++) {
        begin_step(step);
        if (s->rank == 0) {
            int source;
            if (is_master_busy) work("prepare", s->work_ns / 2, delay_of(step));
            for (int worker = 1; worker < s->size; worker++) send_to(worker, step);
            for (int worker = 1; worker < s->size; worker++) receive_any(asks_status, &source);
        } else {
            receive_from(0);
            work("task", s->work_ns, is_master_busy ? 0 : delay_of(step));
            send_to(0, step);
        }
        end_step();
    }
}

/* A worker gets the next task when it returns a result. There are `steps` tasks for each worker. */
static void on_demand(void)
{
    int tasks = s->steps * (s->size - 1);
    if (s->rank == 0) {
        for (int task = 0, running = 0; task < tasks || running > 0;) {
            int worker = task + 1;
            begin_step(task);
            if (task >= s->size - 1) {
                receive_any(true, &worker);
                running--;
            }
            send_to(worker, task < tasks ? task : STOP);
            if (task < tasks) running++;
            task++;
            end_step();
        }
        return;
    }
    for (int step = 0;; step++) {
        int task = receive_from(0);
        if (task == STOP) return;
        begin_step(step);
        work("task", s->work_ns, delay_of(step));
        send_to(0, task);
        end_step();
    }
}

bool run_master(const char *name)
{
    if (!strcmp(name, "master")) rounds(true, false);
    else if (!strcmp(name, "master-blind")) rounds(false, false);
    else if (!strcmp(name, "slow-master")) rounds(true, true);
    else if (!strcmp(name, "demand")) on_demand();
    else return false;
    return true;
}
