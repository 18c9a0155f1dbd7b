//! MPI calls with a strict stand-in for MPI: it aborts, as MPI may, when it is asked about anything invalid.

// clippy recognises only functions with a test attribute.

use crate::support;
use std::path::PathBuf;
use support::{Bench, Trace, exit_code, text};

/// One rank, with the handles of MPICH: `int`, as in its header.
const STAND_IN: &str = r#"
typedef int comm_t, type_t, group_t;
enum { WORLD = 0x44000000, INTER = 0x84000001, INT = 0x4c000405, LARGE = 0x8c000001 };
int stand_in_initialized, stand_in_finalized, stand_in_asked;
static void (*handler)(void);
static int known(comm_t comm) {
    if (comm == WORLD && (!stand_in_initialized || stand_in_finalized)) abort();
    if (comm != WORLD && comm != INTER && comm != 0x84000002) abort();
    return stand_in_asked++, 0;
}
#ifndef STRANGE
int MPIR_Dup_fn(void) { return 0; }
#endif
int PMPI_Init(int *argc, char ***argv) { (void)argc, (void)argv; return stand_in_initialized = 1, 0; }
int MPI_Init(int *argc, char ***argv) { return PMPI_Init(argc, argv); }
int MPI_Finalize(void) { return stand_in_finalized = 1, 0; }
int PMPI_Initialized(int *flag) { *flag = stand_in_initialized; return 0; }
int PMPI_Finalized(int *flag) { *flag = stand_in_finalized; return 0; }
int PMPI_Type_size(type_t type, int *size) {
    if (type != INT && type != LARGE) abort();
    stand_in_asked++;
    *size = type == INT ? 4 : 100;
    return 0;
}
int PMPI_Comm_size(comm_t comm, int *size) { *size = 1; return known(comm); }
int PMPI_Comm_rank(comm_t comm, int *rank) { *rank = 0; return known(comm); }
int PMPI_Comm_test_inter(comm_t comm, int *flag) { *flag = comm == INTER; return known(comm); }
int PMPI_Comm_remote_size(comm_t comm, int *size) { *size = 1; return known(comm); }
int PMPI_Comm_group(comm_t comm, group_t *group) { *group = 0x88000000; return known(comm); }
int PMPI_Group_translate_ranks(group_t from, int n, const int *ranks, group_t to, int *other) {
    if (from != 0x88000000 || to != 0x88000000 || n != 1) abort();
    *other = *ranks;
    return 0;
}
int PMPI_Group_free(group_t *group) { *group = 0; return 0; }
int MPI_Comm_dup(comm_t comm, comm_t *made) { (void)comm; *made = 0x84000002; return 0; }
int MPI_Comm_set_name(comm_t comm, const char *name) { (void)comm; return name ? 0 : 12; }
void mpi_comm_set_name_(int *comm, const char *name, int *error, size_t length) {
    (void)comm, (void)length;
    *error = name ? 0 : 12;
}
void mpi_initialized_(void) {}
int MPI_Gather(const void *a, int n, type_t t, void *b, int m, type_t u, int root, comm_t comm) {
    (void)a, (void)n, (void)t, (void)b, (void)m, (void)u, (void)root, (void)comm;
    return 0;
}
int MPI_Scatter(const void *a, int n, type_t t, void *b, int m, type_t u, int root, comm_t comm) {
    return MPI_Gather(a, n, t, b, m, u, root, comm);
}
int MPI_Bcast(void *a, int n, type_t t, int root, comm_t comm) {
    return MPI_Gather(a, n, t, a, n, t, root, comm);
}
int MPI_Barrier(comm_t comm) { (void)comm; return 0; }
void stand_in_handler(void (*function)(void)) { handler = function; }
int MPI_Send(const void *a, int n, type_t t, int to, int tag, comm_t comm) {
    (void)a, (void)n, (void)t, (void)tag;
    MPI_Barrier(comm); /* MPI calls its own functions */
    if (to == 99) handler();
    return 0;
}
"#;

const HEADER: &str = r#"
#include <setjmp.h>
enum { WORLD = 0x44000000, INTER = 0x84000001, INT = 0x4c000405, RUBBISH = 0x15151515 };
enum { ROOT = -3, PROC_NULL = -1 };
extern int stand_in_initialized, stand_in_asked;
int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Comm_dup(int, int *);
int MPI_Comm_set_name(int, const char *);
void mpi_comm_set_name_(int *, const char *, int *, size_t);
int MPI_Gather(const void *, int, int, void *, int, int, int, int);
int MPI_Scatter(const void *, int, int, void *, int, int, int, int);
int MPI_Bcast(void *, int, int, int, int);
int MPI_Barrier(int);
int MPI_Send(const void *, int, int, int, int, int);
void stand_in_handler(void (*)(void));
"#;

struct Job {
    bench: Bench,
    library: PathBuf,
}

impl Job {
    fn new(options: &[&str]) -> Option<Job> {
        let bench = Bench::new()?;
        let options = [&["-shared", "-fPIC"], options].concat();
        let library = bench.program_with("libmpi_stand_in.so", STAND_IN, &options);
        Some(Job { bench, library })
    }

    /// Runs a program, which must return 0.
    fn run(&self, source: &str) -> Trace {
        let program = self.bench.linked_program("program", &format!("{HEADER}{source}"), &self.library);
        let output = self.bench.run(&program, &[]);
        assert_eq!(exit_code(&output), 0, "{output:?}");
        self.bench.trace()
    }
}

/// Returns the number of recorded calls of a function, and their bytes.
fn calls(trace: &Trace, name: &str) -> (usize, Vec<String>) {
    let of_it: Vec<_> = trace.calls.iter().filter(|row| text(row, "name_id") == name).collect();
    (of_it.len(), of_it.iter().map(|row| text(row, "bytes").to_owned()).collect())
}

#[test]
fn arguments_that_mean_nothing_are_not_asked_about() {
    let Some(job) = Job::new(&[]) else { return };
    let trace = job.run(
        r#"
int main(void) {
    char data[8];
    MPI_Init(0, 0);
    MPI_Gather(0, 1, RUBBISH, data, 1, INT, ROOT, INTER);
    MPI_Gather(0, 1, RUBBISH, 0, 1, RUBBISH, PROC_NULL, INTER);
    MPI_Gather(data, 1, INT, 0, 1, RUBBISH, 0, INTER);
    MPI_Scatter(data, 1, INT, 0, 1, RUBBISH, ROOT, INTER);
    MPI_Scatter(0, 1, RUBBISH, 0, 1, RUBBISH, PROC_NULL, INTER);
    MPI_Bcast(data, 2, INT, ROOT, INTER);
    MPI_Bcast(0, 1, RUBBISH, PROC_NULL, INTER);
    MPI_Finalize();
    return 0;
}
"#,
    );
    let bytes = |name| calls(&trace, name).1;
    assert_eq!(bytes("MPI_Gather"), ["NULL", "NULL", "4"]);
    assert_eq!(bytes("MPI_Scatter"), ["NULL", "NULL"]);
    assert_eq!(bytes("MPI_Bcast"), ["8", "NULL"]);
}

#[test]
fn a_program_with_sessions_alone_is_not_asked_for_its_world() {
    let Some(job) = Job::new(&[]) else { return };
    let trace = job.run(
        r#"
int main(void) {
    int session_comm = 0x84000002, made;
    return MPI_Comm_dup(session_comm, &made) || MPI_Barrier(made);
}
"#,
    );
    assert_eq!((calls(&trace, "MPI_Comm_dup").0, calls(&trace, "MPI_Barrier").0), (1, 1));
}

#[test]
fn a_name_may_be_missing_or_its_length_half_defined() {
    let Some(job) = Job::new(&[]) else { return };
    // The name ends at the end of a page, and the next page is not mapped.
    let trace = job.run(
        r#"
#include <sys/mman.h>
int main(void) {
    int world = WORLD, error = -1;
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    char *name = memcpy(pages + 4096 - 6, "name  ", 6);
    MPI_Init(0, 0);
    if (MPI_Comm_set_name(WORLD, 0) != 12) return 1;
    mpi_comm_set_name_(&world, name, &error, 0x7654321000000006);
    if (error != 0) return 2;
    MPI_Finalize();
    return 0;
}
"#,
    );
    assert_eq!(calls(&trace, "MPI_Comm_set_name").0, 2);
    let named = |row: &support::Row| row.values().flatten().any(|value| value == "name");
    assert!(trace.communicators.iter().any(named), "{:?}", trace.communicators);
}

#[test]
fn an_error_handler_may_jump_out_of_a_call() {
    let Some(job) = Job::new(&[]) else { return };
    let trace = job.run(
        r#"
static jmp_buf out;
static void jump(void) { longjmp(out, 1); }
int main(void) {
    volatile int i;
    MPI_Init(0, 0);
    stand_in_handler(jump);
    for (i = 0; i < 3; i++)
        if (setjmp(out) == 0) MPI_Send(0, 0, INT, 99, 0, WORLD);
    for (i = 0; i < 5; i++) MPI_Barrier(WORLD);
    MPI_Finalize();
    return 0;
}
"#,
    );
    assert_eq!((calls(&trace, "MPI_Send").0, calls(&trace, "MPI_Barrier").0), (3, 5));
    assert_eq!(calls(&trace, "MPI_Finalize").0, 1);
    assert!(trace.calls.iter().all(|row| row["end"].is_some()), "{:?}", trace.calls);
}

#[test]
fn an_mpi_of_another_family_is_left_alone() {
    let Some(job) = Job::new(&["-DSTRANGE"]) else { return };
    let trace = job.run(
        r#"
int main(void) {
    char data[8];
    int made;
    roctxMarkA("here");
    MPI_Init(0, 0);
    MPI_Gather(data, 1, RUBBISH, data, 1, RUBBISH, 0, WORLD);
    MPI_Comm_dup(WORLD, &made);
    MPI_Finalize();
    return stand_in_initialized != 1 || stand_in_asked != 0;
}
"#,
    );
    assert_eq!((trace.calls.len(), trace.marks.len()), (0, 1));
}
