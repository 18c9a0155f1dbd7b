/* The log of a rank: kept in memory, and written as JSON lines after MPI_Finalize. */
#include "truth.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LABELS = 16 };

struct range {
    const char *label;
    int step;
    int64_t begin, end, planted_ns;
};

/* Time of a rank in ranges of a label. */
struct label_sum {
    const char *label;
    int count;
    int64_t ns, planted_ns;
};

static struct call *calls;
static struct range *ranges;
static size_t call_count, range_count;

/* Makes room for one more item; the capacity is the next power of two. */
static void *grown(void *items, size_t count, size_t bytes)
{
    if (count & (count - 1)) return items;
    items = realloc(items, (count ? 2 * count : 1) * bytes);
    if (!items) abort();
    return items;
}

void log_call(const struct call *call)
{
    calls = grown(calls, call_count, sizeof *calls);
    calls[call_count] = *call;
    calls[call_count++].step = current_step();
}

void log_range(const char *label, int step, int64_t begin, int64_t end, int64_t planted_ns)
{
    ranges = grown(ranges, range_count, sizeof *ranges);
    ranges[range_count++] = (struct range){label, step, begin, end, planted_ns};
}

static void write_ranks(FILE *file, const char *key, const int *ranks, int count)
{
    if (count == 0) return;
    fprintf(file, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) fprintf(file, "%s%d", i ? "," : "", ranks[i]);
    fputc(']', file);
}

static void write_call(FILE *file, const struct call *call)
{
    fprintf(file, "{\"call\":\"%s\",\"step\":%d,\"enter_ns\":%" PRId64 ",\"exit_ns\":%" PRId64, call->function,
            call->step, call->enter, call->exit);
    write_ranks(file, "sends", call->sends, call->send_count);
    write_ranks(file, "posts", call->posts, call->post_count);
    write_ranks(file, "receives", call->receives, call->receive_count);
    if (call->is_synchronous) fprintf(file, ",\"synchronous\":true");
    if (call->circle) fprintf(file, ",\"circle\":\"%s\",\"number\":%d", call->circle, call->number);
    write_ranks(file, "waits_for", call->waits_for, call->wait_count);
    fputs("}\n", file);
}

static void write_range(FILE *file, const struct range *range)
{
    fprintf(file, "{\"range\":\"%s\",\"step\":%d,\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64, range->label,
            range->step, range->begin, range->end);
    if (range->planted_ns) fprintf(file, ",\"planted_ns\":%" PRId64, range->planted_ns);
    fputs("}\n", file);
}

static void write_sums(FILE *file)
{
    struct label_sum sums[MAX_LABELS] = {{0}};
    int count = 0;
    for (size_t i = 0; i < range_count; i++) {
        int at = 0;
        while (at < count && strcmp(sums[at].label, ranges[i].label)) at++;
        if (at == MAX_LABELS) abort();
        if (at == count) sums[count++].label = ranges[i].label;
        sums[at].count++;
        sums[at].ns += ranges[i].end - ranges[i].begin;
        sums[at].planted_ns += ranges[i].planted_ns;
    }
    for (int at = 0; at < count; at++)
        fprintf(file, "{\"label\":\"%s\",\"count\":%d,\"ns\":%" PRId64 ",\"planted_ns\":%" PRId64 "}\n",
                sums[at].label, sums[at].count, sums[at].ns, sums[at].planted_ns);
}

void write_log(int64_t start, int64_t end)
{
    char path[4096], host[256] = "";
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/log-%05d.jsonl", settings.log_folder, settings.rank);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    fprintf(file,
            "{\"rank\":%d,\"ranks\":%d,\"host\":\"%s\",\"program\":\"%s\",\"start_ns\":%" PRId64
            ",\"end_ns\":%" PRId64 "}\n",
            settings.rank, settings.size, host, settings.program, start, end);
    for (size_t i = 0; i < range_count; i++) write_range(file, &ranges[i]);
    for (size_t i = 0; i < call_count; i++) write_call(file, &calls[i]);
    write_sums(file);
    if (ferror(file) || fclose(file)) {
        perror(path);
        exit(1);
    }
}
