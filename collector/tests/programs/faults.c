#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
static struct counts { long ranges, marks, rccl; } *emitted;
static volatile long user, end, child, staying;
static const char *self_path, *counts_path;
#define COUNT(what) __atomic_fetch_add(&emitted->what, 1, __ATOMIC_SEQ_CST)

/* Nothing is there to call without the library. */
#define CALL(function, ...) (function ? (void)function(__VA_ARGS__) : (void)0)

static void handler(int signal) {
    int kept = errno;
    if (signal == SIGUSR1) { COUNT(marks); CALL(roctxMarkA, "handler"); user++; if (staying && write(1, "u", 1) != 1) _exit(95); }
    if (signal == SIGTERM) end++;
    if (signal == SIGCHLD) child++;
    errno = kept;
}
static uint64_t work(uint64_t sum, long rounds) {
    unsigned char text[16] = {0};
    for (long i = 0; i < rounds; i++) {
        COUNT(ranges); CALL(roctxRangePushA, "step");
        COUNT(ranges); CALL(roctxRangePushA, i % 3 ? "forward" : "backward");
        for (int n = 0; n < 50; n++) sum = sum * 6364136223846793005u + 1442695040888963407u;
        CALL(roctxRangePop);
        COUNT(marks); CALL(roctxMarkA, "mark");
        COUNT(rccl);
        if (ncclAllReduce(text, text, 8, 7, 0, text, 0)) sum++;
        COUNT(ranges);
        uint64_t id = roctxRangeStartA ? roctxRangeStartA("async") : 0;
        CALL(roctxRangeStop, id);
        CALL(roctxRangePop);
        if (i % 50 == 49) usleep(200);
    }
    return sum;
}
static void *thread(void *seed) { return (void *)work((uint64_t)seed, 500); }
static int child_main(uint64_t seed, int threads) {
    pthread_t other;
    void *sum = 0;
    int some = threads && pthread_create(&other, 0, thread, (void *)seed) == 0;
    uint64_t mine = work(seed, 100);
    if (some) pthread_join(other, &sum);
    return (mine ^ (uint64_t)sum) & 63;
}
static void map_counts(void) {
    int file = open(counts_path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096)) exit(90);
    emitted = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (emitted == MAP_FAILED) exit(91);
    close(file);
}
int main(int argc, char **argv) {
    long kib = atol(argv[1]);
    self_path = argv[0]; counts_path = argv[2];
    map_counts();
    if (argc > 3 && !strcmp(argv[3], "child")) return child_main(5, 0);

    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGTERM, &action, 0);
    sigaction(SIGCHLD, &action, 0);
    /* Signals from outside are for the first thread, as the children are. */
    sigset_t ours, before;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1); sigaddset(&ours, SIGTERM); sigaddset(&ours, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ours, &before);

    uint64_t sum = 1;
    uint64_t *memory = mmap(0, kib << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 92;
    pthread_t threads[4];
    int some = 0;
    while (some < 4 && pthread_create(&threads[some], 0, thread, (void *)(uint64_t)some) == 0) some++;
    for (long i = 0; i < kib << 7; i += 64) memory[i] = sum = sum * 25214903917 + 11;
    for (int i = 0; i < some; i++) { void *one; pthread_join(threads[i], &one); sum ^= (uint64_t)one; }

    sigset_t all_but_child = before;
    for (int i = 0; i < 4; i++) {
        long seen = child;
        char text[16];
        snprintf(text, sizeof text, "%ld", kib);
        pid_t pid = fork();
        if (pid == 0) {
            if (i == 3) execl(self_path, self_path, text, counts_path, "child", (char *)0);
            int code = child_main(i, i == 1);
            if (i == 2) exit(code);
            _exit(code);
        }
        int status = 0;
        if (pid < 0) return 93;
        while (child == seen) sigsuspend(&all_but_child);
        waitpid(pid, &status, 0);
        sum = sum * 31 + status;
    }
    sigprocmask(SIG_SETMASK, &before, 0);
    for (int i = 0; i < 10; i++) { sum = work(sum, 3); raise(SIGUSR1); }
    if (argc > 3 && !strcmp(argv[3], "stay")) {
        staying = 1;
        if (write(1, "ready\n", 6) != 6) return 94;
        /* Signals come at any moment of these; how many there are depends on when it ends. */
        while (!end) { work(1, 10); usleep(500); }
    }
    for (long i = 0; i < kib << 7; i += 64) sum = sum * 31 + memory[i];
    printf("handlers %ld %ld %ld\nwork %lx\n", user, end, child, sum);
    fflush(stdout);
    fprintf(stderr, "reference: done\n");
    return 17;
}
