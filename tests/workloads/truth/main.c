/* Runs a program in which given ranks are slow, and logs the truth about it.
 *
 *   truth PROGRAM --log FOLDER [--plan none|rank|node|turns|two|phase] [--guilty N] [--nodes N] [--steps N]
 *         [--work-ms MS] [--excess SHARE] [--inner-ms MS] [--noise SHARE] [--seed N]
 *         [--reads FILE] [--group FILE]
 *
 * Each rank writes FOLDER/log-RANK.jsonl. The excess is a share of the work. */
#include "truth.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings settings = {
    .program = "", .log_folder = ".", .reads = "", .group = "", .plan = PLAN_RANK, .nodes = 2, .guilty = 1, .steps = 40, .noise = 0.02, .seed = 1,
};

static void refuse(const char *what, const char *value)
{
    fprintf(stderr, "truth: %s '%s'\n", what, value);
    exit(2);
}

static enum plan plan_of(const char *name)
{
    static const char *const names[] = {"none", "rank", "node", "turns", "two", "phase"};
    for (int i = 0; i <= PLAN_PHASE; i++)
        if (!strcmp(names[i], name)) return (enum plan)i;
    refuse("no such plan", name);
    return PLAN_NONE;
}

static void read_options(int argc, char **argv)
{
    double work_ms = 50, excess = 0.2, inner_ms = 0;
    if (argc % 2) refuse("an option without its value; usage: truth PROGRAM [OPTION VALUE]...", argv[argc - 1]);
    settings.program = argv[1];
    for (int i = 2; i < argc; i += 2) {
        const char *option = argv[i], *value = argv[i + 1];
        if (!strcmp(option, "--log")) settings.log_folder = value;
        else if (!strcmp(option, "--plan")) settings.plan = plan_of(value);
        else if (!strcmp(option, "--guilty")) settings.guilty = atoi(value);
        else if (!strcmp(option, "--nodes")) settings.nodes = atoi(value);
        else if (!strcmp(option, "--steps")) settings.steps = atoi(value);
        else if (!strcmp(option, "--work-ms")) work_ms = atof(value);
        else if (!strcmp(option, "--excess")) excess = atof(value);
        else if (!strcmp(option, "--inner-ms")) inner_ms = atof(value);
        else if (!strcmp(option, "--noise")) settings.noise = atof(value);
        else if (!strcmp(option, "--reads")) settings.reads = value;
        else if (!strcmp(option, "--group")) settings.group = value;
        else if (!strcmp(option, "--seed")) settings.seed = strtoull(value, NULL, 10);
        else refuse("no such option", option);
    }
    if (settings.nodes < 1 || settings.steps < 1 || work_ms <= 0) refuse("nothing to run in", settings.program);
    settings.work_ns = (int64_t)(work_ms * 1e6);
    settings.excess_ns = (int64_t)(work_ms * 1e6 * excess);
    settings.inner_ns = (int64_t)(inner_ms * 1e6);
}

int main(int argc, char **argv)
{
    int64_t start = now();
    read_options(argc, argv);
    initialise(&argc, &argv);
    const char *name = settings.program;
    if (!needs_own_cores(name)) run_first();
    if (!run_program(name) && !run_master(name) && !run_communicators(name) && !run_causes(name)) {
        fprintf(stderr, "truth: no program '%s'\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    finish();
    write_log(start, now());
    return 0;
}
