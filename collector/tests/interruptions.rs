//! Events that are interrupted: by signals, forks, cancellations, and an allocator that must not be called.

use crate::support;
use support::{Bench, exit_code, text};

#[test]
fn a_child_that_a_signal_handler_forks_in_mid_event_goes_on() {
    let Some(bench) = Bench::new() else { return };
    // The child returns from the handler into the interrupted event.
    let source = r#"
#include <sys/time.h>
static volatile sig_atomic_t is_child, forks, failed;
static void handler(int unused) {
    int status;
    pid_t child = fork();
    is_child = child == 0;
    if (child > 0 && waitpid(child, &status, 0) == child) { forks++; failed += status != 0; }
}
int main(void) {
    char name[1000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    roctxMarkA("parent");
    signal(SIGALRM, handler);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, 0);
    while (forks < 100 && !is_child) roctxMarkA(name);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, 0);
    if (is_child) { roctxMarkA("child"); _exit(0); }
    printf("%d", forks);
    return failed ? 1 : 0;
}
"#;
    let program = bench.program("forks", source);
    let output = bench.run(&program, &[]);
    assert_eq!(exit_code(&output), 0, "a child died");
    let forks: usize = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    let trace = bench.trace();
    let named = |name: &str| trace.marks.iter().filter(|row| text(row, "name_id") == name).count();
    assert_eq!((named("parent"), named("child")), (1, forks));
}

#[test]
fn an_event_is_no_point_where_a_thread_is_cancelled() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
static int reached, reaped;
static pid_t child;
static void *first_event(void *unused) {
    pthread_cancel(pthread_self());
    roctxMarkA("first");
    reached = 1;
    pthread_testcancel();
    return unused;
}
static int is_cancelled(void *(*work)(void *)) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, work, 0);
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED;
}
static int cleaned;
static void clean(void *unused) { (void)unused; cleaned = 1; }
static void *wait_for_child(void *ready) {
    pthread_cleanup_push(clean, 0);
    pthread_barrier_wait(ready);
    waitpid(child, 0, 0);
    reaped = 1;
    pthread_cleanup_pop(0);
    return 0;
}
int main(void) {
    if (!is_cancelled(first_event) || !reached) return 1;
    child = fork();
    if (child == 0) { pause(); _exit(0); }
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, 0, 2);
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, wait_for_child, &ready);
    pthread_barrier_wait(&ready);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    kill(child, SIGKILL);
    if (waitpid(child, 0, 0) != child) return 3;
    return result == PTHREAD_CANCELED && cleaned && !reaped ? 0 : 4;
}
"#;
    let program = bench.program("cancelled", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    assert_eq!(bench.trace().marks.len(), 1);
}

#[test]
fn events_allocate_nothing() {
    let Some(bench) = Bench::new() else { return };
    // With an allocator of its own, which a signal handler may interrupt.
    let source = r#"
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static __thread int in_event;
static int allocations;
void *malloc(size_t bytes) { allocations += in_event; return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { allocations += in_event; return __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { allocations += in_event; return __libc_realloc(old, bytes); }
static void nothing(void) {}
static void *events(void *unused) {
    in_event = 1;
    uint64_t range = roctxRangeStartA("range");
    roctxRangeStop(range);
    roctxMarkA("mark");
    roctxRangePushA("push");
    roctxRangePop();
    in_event = 0;
    return unused;
}
int main(void) {
    /* What comes later of these has to be allocated. */
    for (int i = 0; i < 64; i++) { pthread_key_t key; pthread_key_create(&key, 0); atexit(nothing); }
    events(0);
    pthread_t thread;
    pthread_create(&thread, 0, events, 0);
    pthread_join(thread, 0);
    if (fork() == 0) { events(0); _exit(allocations); }
    int status;
    wait(&status);
    return allocations + WEXITSTATUS(status);
}
"#;
    let program = bench.program("allocations", source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0, "allocations");
    assert_eq!((bench.trace().marks.len(), bench.trace().ranges.len()), (3, 6));
}

#[test]
fn signals_do_not_make_a_ring_smaller() {
    let Some(bench) = Bench::new() else { return };
    // Acts as Linux before 6 does if a signal arrives in the middle.
    let source = r#"
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
int fallocate(int file, int mode, off_t offset, off_t bytes) {
    static int attempts;
    if (attempts++ < 5) { errno = EINTR; return -1; }
    return syscall(SYS_fallocate, file, mode, offset, bytes);
}
int main(void) {
    char line[512];
    unsigned long from, to, bytes = 0;
    roctxMarkA("first");
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "rpd-ring") && sscanf(line, "%lx-%lx", &from, &to) == 2) bytes = to - from;
    return bytes > 1 << 20 ? 0 : 1;
}
"#;
    let program = bench.program_with("interrupted", source, &["-rdynamic"]);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0, "a small ring");
}

#[test]
fn nothing_of_ours_is_where_the_standard_streams_were() {
    let Some(bench) = Bench::new() else { return };
    // Another thread may write to them: into the socket, or over the start of the ring.
    let source = r#"
#include <sys/socket.h>
#include <sys/syscall.h>
static int lowest = 99, sent;
ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    int file = socket;
    struct cmsghdr *first = CMSG_FIRSTHDR(message);
    if (first) memcpy(&file, CMSG_DATA(first), sizeof file);
    if (socket < lowest) lowest = socket;
    if (file < lowest) lowest = file;
    sent++;
    return syscall(SYS_sendmsg, socket, message, flags);
}
int main(void) {
    close(0), close(1), close(2);
    roctxMarkA("first");
    return sent == 1 && lowest > 2 && write(0, "", 1) < 0 && write(1, "", 1) < 0 && write(2, "", 1) < 0 ? 0 : 1;
}
"#;
    let program = bench.program_with("streams", source, &["-rdynamic"]);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    assert_eq!(bench.trace().marks.len(), 1);
}

#[test]
fn a_thread_may_be_cancelled_in_a_real_roctx_library() {
    let Some(bench) = Bench::new() else { return };
    let real = r#"
void roctxMarkA(const char *name) { (void)name; pause(); }
int roctxRangePushA(const char *name) { (void)name; pause(); return 0; }
int roctxRangePop(void) { pause(); return 0; }
"#;
    let library = bench.library_of("libroctx64.so", real);
    let source = r#"
static int cleaned;
static void clean(void *unused) { (void)unused; cleaned++; }
static void *call(void *what) {
    pthread_cleanup_push(clean, 0);
    pthread_cancel(pthread_self());
    switch (*(int *)what) {
    case 0: roctxMarkA("x"); break;
    case 1: roctxRangePushA("x"); break;
    default: roctxRangePop();
    }
    pthread_cleanup_pop(0);
    return 0;
}
int main(void) {
    for (int what = 0; what < 3; what++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, call, &what);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) return 1;
    }
    return cleaned == 3 ? 0 : 2;
}
"#;
    let program = bench.linked_program("cancelled", source, &library);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    assert_eq!((bench.trace().marks.len(), bench.trace().ranges.len()), (1, 1));
}

#[test]
fn a_small_stack_is_enough_for_a_first_event() {
    let Some(bench) = Bench::new() else { return };
    // The smallest stack of a thread, and how much of it was used.
    let source = r#"
#include <limits.h>
#include <sys/mman.h>
static void *nothing(void *unused) { return unused; }
static void *event(void *unused) { roctxMarkA("first"); return unused; }
static long touched(void *(*work)(void *)) {
    size_t bytes = PTHREAD_STACK_MIN;
    char *stack = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, 90, bytes);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, bytes);
    if (pthread_create(&thread, &attributes, work, 0)) exit(1);
    pthread_join(thread, 0);
    size_t untouched = 0;
    while (untouched < bytes && stack[untouched] == 90) untouched++;
    return bytes - untouched;
}
int main(void) {
    long before = touched(nothing);
    for (int i = 0; i < 3; i++) printf("%ld\n", touched(event) - before);
    return 0;
}
"#;
    let program = bench.program("small", source);
    let output = bench.run(&program, &[]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let used: Vec<u64> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(used.len() == 3 && used.iter().all(|bytes| (1..6 << 10).contains(bytes)), "{used:?}");
    assert_eq!(bench.trace().marks.len(), 3);
}
