//! Programs that do unusual things.

/// Programs that do unusual things: name, source, and the minimum number of ranges that must be recorded or
/// counted (none if it is unknown).
pub(crate) const ODD: &[(&str, &str, Option<u64>)] = &[
    (
        "closes all descriptors",
        r#"
int close_range(unsigned, unsigned, int);
int main(void) {
    for (int i = 0; i < 20; i++) { close_range(3, ~0u, 0); range("x"); }
    close_range(3, ~0u, 0);
    return open("/dev/null", O_RDONLY);
}"#,
        Some(20),
    ),
    (
        "is no more dumpable",
        r#"
#include <sys/prctl.h>
int main(void) {
    prctl(PR_SET_DUMPABLE, 0);
    for (int i = 0; i < 20; i++) range("x");
    if (fork() == 0) { range("x"); _exit(prctl(PR_GET_DUMPABLE)); }
    int status;
    wait(&status);
    return status >> 8;
}"#,
        Some(21),
    ),
    (
        "forks into a pid namespace",
        r#"
int main(void) {
    int status = 0;
    range("x");
    if (unshare(CLONE_NEWPID)) { for (int i = 0; i < 10; i++) range("x"); puts("1 0"); return 3; }
    pid_t child = fork();
    if (child == 0) { for (int i = 0; i < 10; i++) range("x"); printf("%d ", getpid()); fflush(stdout); _exit(0); }
    waitpid(child, &status, 0);
    printf("%d\n", status);
    return 3;
}"#,
        Some(11),
    ),
    (
        "makes processes with clone3",
        r#"
#include <linux/sched.h>
int main(void) {
    int sum = 0;
    for (int i = 0; i < 10; i++) {
        struct clone_args arguments = {.exit_signal = SIGCHLD};
        range("x");
        long child = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (child < 0) child = fork();
        if (child == 0) { range("x"); syscall(SYS_exit_group, i); }
        int status;
        waitpid(child, &status, 0);
        sum += status;
    }
    printf("%d\n", sum);
    return 0;
}"#,
        Some(20),
    ),
    (
        "storms of vfork",
        r#"
static void *storm(void *unused) {
    for (int i = 0; i < 50; i++) {
        int status;
        range("x");
        pid_t child = vfork();
        if (child == 0) _exit(i & 1);
        if (child < 0 || waitpid(child, &status, 0) != child || status >> 8 != (i & 1)) abort();
    }
    return unused;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, storm, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 11;
}"#,
        Some(200),
    ),
    (
        "cancels threads that wait",
        r#"
static int pipes[2], cleaned;
static void clean(void *unused) { (void)unused; cleaned++; pop(); }
static void *waits(void *how) {
    char byte;
    push("x");
    pthread_cleanup_push(clean, 0);
    switch ((long)how) {
    case 0: waitpid(-1, 0, 0); break;
    case 1: if (read(pipes[0], &byte, 1)) break; break;
    case 2: sleep(100); break;
    default: wait(0);
    }
    pthread_cleanup_pop(0);
    return how;
}
int main(void) {
    if (pipe(pipes)) return 1;
    pid_t child = fork();
    if (child == 0) { pause(); _exit(0); }
    for (long how = 0; how < 4; how++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, waits, (void *)how);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%d ", result == PTHREAD_CANCELED);
    }
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    printf("%d\n", cleaned);
    return 0;
}"#,
        Some(4),
    ),
    (
        "jumps out of ranges",
        r#"
static jmp_buf place;
static void deep(int n) { push("x"); if (n == 0) longjmp(place, 1); deep(n - 1); }
int main(void) {
    for (volatile int i = 0; i < 50; i++) if (setjmp(place) == 0) deep(3);
    return 2;
}"#,
        Some(200),
    ),
    (
        "takes LD_PRELOAD away and starts itself again",
        r#"
int main(int argc, char **argv) {
    range("x");
    if (argc > 1) { printf("%d\n", getenv("LD_PRELOAD") != 0); return 8; }
    unsetenv("LD_PRELOAD");
    execl(argv[0], argv[0], "again", (char *)0);
    return 1;
}"#,
        Some(1),
    ),
    (
        "starts children without an environment",
        r#"
int main(int argc, char **argv) {
    char command[4096];
    if (argc > 1) { range("not seen"); return 3; }
    range("x");
    snprintf(command, sizeof command, "env -i %s child", argv[0]);
    return system(command) >> 8;
}"#,
        Some(1),
    ),
    (
        "becomes a daemon",
        r#"
int main(void) {
    range("x");
    int said[2];
    char text[6] = "";
    if (pipe(said)) return 1;
    pid_t child = fork();
    if (child == 0) {
        if (daemon(0, 0)) _exit(1);
        for (int i = 0; i < 5; i++) range("x");
        if (write(said[1], "hello", 5) != 5) _exit(1);
        _exit(0);
    }
    waitpid(child, 0, 0);
    if (read(said[0], text, 5) != 5) return 2;
    puts(text);
    return 5;
}"#,
        Some(6),
    ),
];

pub(crate) const ODD_PROLOGUE: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/syscall.h>
"#;
