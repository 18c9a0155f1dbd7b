/* Work by sleeping to an absolute time: ranks outnumber cores. Its noise, its delays, and its roctx ranges. */
#define _GNU_SOURCE
#include "truth.h"
#include <math.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

/* Of the preloaded library; null in a run without it. */
int roctxRangePushA(const char *name) __attribute__((weak));
int roctxRangePop(void) __attribute__((weak));

static int step_now = -1;
static int64_t step_began;
static uint64_t drawn;

int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Returns when it woke up. */
int64_t sleep_until(int64_t ns)
{
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL)) {}
    return now();
}

/* Open MPI calls this while a rank waits, if mpi_yield_when_idle is set. Ranks outnumber cores: the waiting ones sleep, so
 * that a rank that wakes up or has a message gets a core at once. */
int sched_yield(void)
{
    struct timespec pause = {0, 20000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    return 0;
}

/* Users without the right to real-time priority get longer work, which is logged as such. */
void run_first(void)
{
    struct sched_param priority = {.sched_priority = 1};
    prctl(PR_SET_TIMERSLACK, 1);
    (void)sched_setscheduler(0, SCHED_FIFO, &priority);
}

static void push(const char *name)
{
    if (roctxRangePushA) roctxRangePushA(name);
}

static void pop(void)
{
    if (roctxRangePop) roctxRangePop();
}

/* Uniform in (0, 1), from seed, rank and the number of the draw (splitmix64). */
static double uniform(void)
{
    uint64_t x = settings.seed * UINT64_C(1000003) + (uint64_t)settings.rank;
    x = x * UINT64_C(0x9e3779b97f4a7c15) + ++drawn * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return ((double)(x >> 12) + 0.5) / 4503599627370496.0;
}

static int64_t noisy(int64_t ns)
{
    double normal = sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
    double factor = 1 + settings.noise * normal;
    return (int64_t)((double)ns * (factor > 0 ? factor : 0));
}

int64_t delay_of(int step)
{
    const struct settings *s = &settings;
    switch (s->plan) {
    case PLAN_NONE: return 0;
    case PLAN_RANK: return s->rank == s->guilty ? s->excess_ns : 0;
    case PLAN_NODE: return s->rank % s->nodes == s->guilty ? s->excess_ns : 0;
    case PLAN_TURNS: return s->rank == step % s->size ? s->excess_ns : 0;
    case PLAN_TWO:
        if (s->rank == s->guilty) return s->excess_ns;
        return s->rank == (s->guilty + 1) % s->size ? s->excess_ns / 2 : 0;
    case PLAN_PHASE:
        return s->rank == s->guilty && step >= s->steps / 4 && step < s->steps * 3 / 4 ? s->excess_ns : 0;
    }
    return 0;
}

void work(const char *label, int64_t ns, int64_t delay_ns)
{
    int64_t begin = now();
    push(label);
    int64_t end = ns > 0 ? sleep_until(begin + noisy(ns)) : now();
    int64_t planted = 0;
    if (delay_ns > 0) {
        int64_t delayed_from = end;
        end = sleep_until(delayed_from + delay_ns);
        planted = end - delayed_from;
    }
    pop();
    log_range(label, step_now, begin, end, planted);
}

int64_t begin_work(const char *label)
{
    int64_t begin = now();
    push(label);
    return begin;
}

void end_work(const char *label, int64_t begin, int64_t planted_ns)
{
    pop();
    log_range(label, step_now, begin, now(), planted_ns);
}

void begin_step(int step)
{
    step_now = step;
    step_began = now();
    push("step");
}

void end_step(void)
{
    pop();
    log_range("step", step_now, step_began, now(), 0);
    step_now = -1;
}

int current_step(void)
{
    return step_now;
}
