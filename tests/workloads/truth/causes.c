/* Programs with a core for each rank, in which a rank is slow for a known cause. Their work is counted, not slept: a rank
 * that has its core for half of the time takes twice as long. */
#define _GNU_SOURCE
#include "truth.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 4 << 20, FAST_READS = 9 };

static const struct settings *s = &settings;
static volatile unsigned long result;

static void give_up(const char *what)
{
    fprintf(stderr, "truth: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* Each multiplication waits for the one before, so that a round takes the same number of cycles each time. */
static void compute(int64_t rounds)
{
    unsigned long value = result | 1;
    for (int64_t i = 0; i < rounds; i++) value = value * 6364136223846793005UL + 1;
    result = value;
}

/* Rounds of about the work of a step at 3 GHz: the same number on all ranks. */
static int64_t rounds_of_step(void)
{
    return s->work_ns * 3 / 4;
}

/* Time of this thread on a core. */
static int64_t time_on_core(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void stay_on_own_core(void)
{
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(s->rank, &core);
    if (sched_setaffinity(0, sizeof core, &core)) give_up("a core for each rank");
}

static bool is_guilty(void)
{
    return s->plan == PLAN_RANK && s->rank == s->guilty;
}

/* The delay of the guilty rank is the time in which its thread had no core. */
static void shared_core(void)
{
    pid_t child = 0;
    if (is_guilty()) {
        pid_t parent = getpid();
        child = fork();
        if (child < 0) give_up("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (getppid() == parent) compute(1 << 20);
            _exit(0);
        }
    }
    for (int step = 0; step < s->steps; step++) {
        begin_step(step);
        int64_t begin = begin_work("work"), on_core = time_on_core();
        compute(rounds_of_step());
        int64_t off_core = now() - begin - (time_on_core() - on_core);
        end_work("work", begin, is_guilty() && off_core > 0 ? off_core : 0);
        allreduce(&world);
        end_step();
    }
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

/* Returns how long the next read of the file took. */
static int64_t timed_read(int file, void *bytes, int64_t number)
{
    int64_t begin = now(), blocks = lseek(file, 0, SEEK_END) / READ_BYTES;
    if (blocks < 1) give_up("too short a file");
    if (pread(file, bytes, READ_BYTES, (number % blocks) * READ_BYTES) != READ_BYTES) give_up(s->reads);
    return now() - begin;
}

static int by_length(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The delay of the guilty rank is by how much its read takes longer than one did before it entered the slow group. */
static void slow_reads(void)
{
    void *bytes = NULL;
    int64_t fast[FAST_READS];
    int file = open(s->reads, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file < 0 || posix_memalign(&bytes, 4096, READ_BYTES)) give_up(s->reads);
    /* One rank after the other, as two would slow each other down. */
    for (int rank = 0; rank < s->size; rank++) {
        barrier(&world);
        for (int i = 0; i < FAST_READS && rank == s->rank; i++) fast[i] = timed_read(file, bytes, i);
    }
    qsort(fast, FAST_READS, sizeof *fast, by_length);
    if (is_guilty()) {
        FILE *group = fopen(s->group, "w");
        if (!group || fputs("0", group) < 0 || fclose(group)) give_up(s->group);
    }
    barrier(&world);
    for (int step = 0; step < s->steps; step++) {
        begin_step(step);
        int64_t begin = begin_work("work");
        compute(rounds_of_step());
        end_work("work", begin, 0);
        begin = begin_work("read");
        int64_t longer = timed_read(file, bytes, step + s->rank) - fast[FAST_READS / 2];
        end_work("read", begin, is_guilty() && longer > 0 ? longer : 0);
        allreduce(&world);
        end_step();
    }
    free(bytes);
    close(file);
}

bool run_causes(const char *name)
{
    if (!strcmp(name, "core")) shared_core();
    else if (!strcmp(name, "reads")) slow_reads();
    else return false;
    return true;
}

bool needs_own_cores(const char *name)
{
    if (strcmp(name, "core") && strcmp(name, "reads")) return false;
    stay_on_own_core();
    return true;
}
