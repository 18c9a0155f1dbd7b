//! RCCL's host calls, with a stand-in that counts the calls that reach it.

// clippy recognises only functions with a test attribute.

use crate::support;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use support::{Bench, Row, Trace, exit_code, number, run, text};

/// A stand-in for RCCL: it records its arguments, and creates communicators that it recognises. Some of its
/// functions call others, as those of RCCL do.
const STAND_IN: &str = r#"
#include <errno.h>
typedef struct comm { int size, rank; } *comm_t;
typedef struct { char bytes[128]; } id_t128;
static struct { const char *name; long calls; } counts[32];
static int inner;
static void count(const char *name) {
    int i = 0;
    if (inner) return;
    while (counts[i].name && strcmp(counts[i].name, name)) i++;
    counts[i].name = name, counts[i].calls++;
    errno = 77;
}
void stand_in_report(const char *path) {
    FILE *file = fopen(path, "w");
    for (int i = 0; counts[i].name; i++) fprintf(file, "%s %ld\n", counts[i].name, counts[i].calls);
    fclose(file);
}
static comm_t make(int size, int rank) {
    comm_t comm = malloc(sizeof *comm);
    comm->size = size, comm->rank = rank;
    return comm;
}
int ncclGetVersion(int *version) { *version = 22000; return 0; }
int ncclCommCount(comm_t comm, int *size) { *size = comm->size; return 0; }
static int has_id(id_t128 id) {
    for (int i = 0; i < 128; i++) if (id.bytes[i] != i) return 0;
    return 1;
}
int ncclCommInitRank(comm_t *comm, int size, id_t128 id, int rank) {
    count("ncclCommInitRank");
    if (!has_id(id)) return 4;
    *comm = make(size, rank);
    return 0;
}
int ncclCommInitRankConfig(comm_t *comm, int size, id_t128 id, int rank, void *config) {
    count("ncclCommInitRankConfig");
    if (!has_id(id) || config != (void *)9) return 4;
    *comm = make(size, rank);
    return 7;
}
int ncclCommInitAll(comm_t *comms, int n, const int *devices) {
    count("ncclCommInitAll");
    for (int i = 0; i < n; i++) comms[i] = make(n, i);
    return 0;
}
int ncclCommSplit(comm_t comm, int color, int key, comm_t *made, void *config) {
    count("ncclCommSplit");
    *made = color < 0 ? 0 : make(comm->size / 2, key);
    return 0;
}
int ncclCommFinalize(comm_t comm) { count("ncclCommFinalize"); return 0; }
int ncclCommDestroy(comm_t comm) { count("ncclCommDestroy"); free(comm); return 0; }
int ncclCommAbort(comm_t comm) { count("ncclCommAbort"); free(comm); return 0; }
int ncclGroupStart(void) { count("ncclGroupStart"); return 0; }
int ncclGroupEnd(void) { count("ncclGroupEnd"); return 0; }
#define ARGUMENTS const void *s, void *r, size_t n, int type
int ncclSend(const void *s, size_t n, int type, int peer, comm_t c, void *stream) {
    count("ncclSend");
    return n == 10 && type == 7 && stream == (void *)5 ? 0 : 4;
}
int ncclRecv(void *r, size_t n, int type, int peer, comm_t c, void *stream) {
    count("ncclRecv");
    return n == 10 && type == 7 && stream == (void *)5 ? 0 : 4;
}
int ncclAllReduce(ARGUMENTS, int op, comm_t c, void *stream) {
    count("ncclAllReduce");
    return op == 2 && stream == (void *)5 ? 0 : 4;
}
int ncclBroadcast(ARGUMENTS, int root, comm_t c, void *stream) { count("ncclBroadcast"); return 0; }
int ncclBcast(void *r, size_t n, int type, int root, comm_t c, void *stream) { count("ncclBcast"); return 0; }
int ncclReduce(ARGUMENTS, int op, int root, comm_t c, void *stream) {
    count("ncclReduce");
    return root == 1 && stream == (void *)5 ? 0 : 4;
}
int ncclAllGather(ARGUMENTS, comm_t c, void *stream) { count("ncclAllGather"); return 0; }
int ncclReduceScatter(ARGUMENTS, int op, comm_t c, void *stream) { count("ncclReduceScatter"); return 0; }
int ncclGather(ARGUMENTS, int root, comm_t c, void *stream) { count("ncclGather"); return 0; }
int ncclScatter(ARGUMENTS, int root, comm_t c, void *stream) { count("ncclScatter"); return 0; }
int ncclAllToAll(ARGUMENTS, comm_t c, void *stream) {
    count("ncclAllToAll");
    inner++;
    ncclGroupStart(), ncclSend(s, 10, 7, 0, c, (void *)5), ncclRecv(r, 10, 7, 0, c, (void *)5), ncclGroupEnd();
    inner--;
    return 0;
}
int ncclAllToAllv(const void *s, const size_t *counts, const size_t *at, void *r, const size_t *counts_r,
                  const size_t *at_r, int type, comm_t c, void *stream) {
    count("ncclAllToAllv");
    return stream == (void *)5 ? 0 : 4;
}
"#;

/// A program that uses it: the body of a function `work` that takes the path of a report.
const WORK: &str = r#"
#include <errno.h>
typedef void *comm_t;
typedef struct { char bytes[128]; } id_t128;
void stand_in_report(const char *);
int ncclCommInitRank(comm_t *, int, id_t128, int);
int ncclCommInitRankConfig(comm_t *, int, id_t128, int, void *);
int ncclCommInitAll(comm_t *, int, const int *);
int ncclCommSplit(comm_t, int, int, comm_t *, void *);
int ncclCommFinalize(comm_t), ncclCommDestroy(comm_t), ncclCommAbort(comm_t);
int ncclGroupStart(void), ncclGroupEnd(void);
int ncclSend(const void *, size_t, int, int, comm_t, void *), ncclRecv(void *, size_t, int, int, comm_t, void *);
int ncclAllReduce(const void *, void *, size_t, int, int, comm_t, void *);
int ncclReduceScatter(const void *, void *, size_t, int, int, comm_t, void *);
int ncclBroadcast(const void *, void *, size_t, int, int, comm_t, void *);
int ncclGather(const void *, void *, size_t, int, int, comm_t, void *);
int ncclScatter(const void *, void *, size_t, int, int, comm_t, void *);
int ncclBcast(void *, size_t, int, int, comm_t, void *);
int ncclReduce(const void *, void *, size_t, int, int, int, comm_t, void *);
int ncclAllGather(const void *, void *, size_t, int, comm_t, void *);
int ncclAllToAll(const void *, void *, size_t, int, comm_t, void *);
int ncclAllToAllv(const void *, const size_t *, const size_t *, void *, const size_t *, const size_t *, int, comm_t,
                  void *);
static void is(int result, int expected) {
    if (result != expected || errno != 77) abort();
    errno = 0;
}
int work(const char *report) {
    comm_t world, config, all[3], half, none;
    void *stream = (void *)5, *b = 0;
    size_t counts[4] = {1, 2, 3, 4};
    id_t128 id;
    for (int i = 0; i < 128; i++) id.bytes[i] = i;
    is(ncclCommInitRank(&world, 4, id, 2), 0);
    is(ncclCommInitRankConfig(&config, 4, id, 1, (void *)9), 7);
    is(ncclCommInitAll(all, 3, 0), 0);
    is(ncclCommSplit(world, 5, 1, &half, 0), 0);
    is(ncclCommSplit(world, -1, 0, &none, 0), 0);
    if (none) abort();
    for (int i = 0; i < 3; i++) is(ncclAllReduce(b, b, 100, 6, 2, world, stream), 0);
    is(ncclAllReduce(b, b, 100, 6, 2, half, stream), 0);
    is(ncclBroadcast(b, b, 20, 0, 3, world, stream), 0);
    is(ncclBcast(b, 20, 0, 3, world, stream), 0);
    is(ncclReduce(b, b, 30, 8, 2, 1, world, stream), 0);
    is(ncclAllGather(b, b, 40, 4, world, stream), 0);
    is(ncclReduceScatter(b, b, 50, 9, 0, world, stream), 0);
    is(ncclGather(b, b, 60, 2, 0, world, stream), 0);
    is(ncclScatter(b, b, 70, 2, 0, world, stream), 0);
    is(ncclAllToAll(b, b, 80, 2, world, stream), 0);
    is(ncclAllToAllv(b, counts, counts, b, counts, counts, 2, world, stream), 0);
    is(ncclGroupStart(), 0);
    is(ncclSend(b, 10, 7, 3, world, stream), 0);
    is(ncclRecv(b, 10, 7, 1, world, stream), 0);
    is(ncclGroupEnd(), 0);
    is(ncclAllReduce(b, b, 100, 6, 0, world, stream), 4);
    is(ncclAllReduce(b, b, 100, 6, 2, world, stream), 0);
    is(ncclCommFinalize(world), 0);
    is(ncclCommDestroy(half), 0);
    is(ncclCommDestroy(world), 0);
    is(ncclCommAbort(config), 0);
    stand_in_report(report);
    return 0;
}
"#;

/// Calls by function.
fn by_function(rows: &[Row]) -> BTreeMap<String, i64> {
    let mut calls = BTreeMap::new();
    for row in rows {
        *calls.entry(text(row, "name_id").to_owned()).or_default() += 1;
    }
    calls
}

/// Counts of the stand-in.
fn reported(bench: &Bench) -> BTreeMap<String, i64> {
    let report = fs::read_to_string(bench.path("report")).unwrap();
    let line = |line: &str| {
        let (name, calls) = line.split_once(' ').unwrap();
        (name.to_owned(), calls.parse().unwrap())
    };
    report.lines().map(line).collect()
}

fn check(bench: &Bench, trace: &Trace) {
    assert_eq!(trace.lost(), 0);
    assert_eq!(by_function(&trace.rccl_calls), reported(bench));
    assert_eq!(reported(bench).len(), 21, "every function that is recorded");
    let of = |name: &str| -> Vec<&Row> {
        trace.rccl_calls.iter().filter(|row| text(row, "name_id") == name).collect()
    };
    let world = text(of("ncclReduce")[0], "comm_id").to_owned();
    assert!(world.starts_with("nccl-") && !world.starts_with("nccl-local"), "{world}");
    let reductions = of("ncclAllReduce");
    let seq = |rows: &[&Row], comm: &str| -> Vec<i64> {
        rows.iter().filter(|row| text(row, "comm_id") == comm).map(|row| number(row, "seq")).collect()
    };
    // Nine other collectives were between the first three and the failed one, which counts as well.
    assert_eq!(seq(&reductions, &world), [1, 2, 3, 13, 14]);
    assert_eq!(seq(&reductions, &format!("{world}/1@5")), [1]);
    let values =
        |row: &Row| ["count", "datatype_id", "bytes", "root", "peer"].map(|c| text(row, c).to_owned());
    assert_eq!(values(reductions[0]), ["100", "ncclFloat16", "200", "NULL", "NULL"]);
    assert_eq!(values(of("ncclReduce")[0]), ["30", "ncclFloat64", "240", "1", "NULL"]);
    assert_eq!(values(of("ncclBcast")[0]), ["20", "ncclInt8", "20", "3", "NULL"]);
    assert_eq!(values(of("ncclSend")[0]), ["10", "ncclFloat32", "40", "NULL", "3"]);
    assert_eq!(values(of("ncclRecv")[0]), ["10", "ncclFloat32", "40", "NULL", "1"]);
    assert_eq!(values(of("ncclAllToAllv")[0]), ["10", "ncclInt32", "40", "NULL", "NULL"]);
    assert_eq!(values(of("ncclGroupStart")[0]), ["NULL"; 5]);

    // Calls with data get a stream.
    for row in &trace.rccl_calls {
        let stream = if text(row, "datatype_id") == "NULL" { "NULL" } else { "5" };
        assert_eq!(text(row, "stream"), stream, "{row:?}");
    }

    let made: BTreeSet<_> = trace
        .communicators
        .iter()
        .map(|row| ["comm_id", "size", "rank"].map(|column| text(row, column).to_owned()))
        .collect();
    let expected = [
        [&*world, "4", "2"],
        [&*world, "4", "1"],
        [&format!("{world}/1@5"), "NULL", "NULL"],
        ["nccl-local-1", "3", "0"],
        ["nccl-local-2", "3", "1"],
        ["nccl-local-3", "3", "2"],
    ];
    assert_eq!(made, expected.map(|row| row.map(str::to_owned)).into());
}

#[test]
fn every_rccl_call_is_recorded_once() {
    let Some(bench) = Bench::new() else { return };
    let library = bench.library_of("librccl.so.1", STAND_IN);
    let main = format!("{WORK}\nint main(int argc, char **argv) {{ return work(argv[1]); }}");
    let program = bench.linked_program("program", &main, &library);
    let output = bench.run(&program, &["report"]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    check(&bench, &bench.trace());
}

/// As in a Python program with an extension module that needs RCCL.
#[test]
fn rccl_is_found_where_it_is_hidden_from_other_libraries() {
    let Some(bench) = Bench::new() else { return };
    let library = bench.library_of("librccl.so.1", STAND_IN);
    let plugin = bench.linked_library("plugin.so", WORK, &library);
    let main = r#"
        #include <dlfcn.h>
        int main(int argc, char **argv) {
            void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
            if (!plugin) return 3;
            return ((int (*)(const char *))dlsym(plugin, "work"))(argv[2]);
        }"#;
    let program = bench.program("program", main);
    let output = bench.run(&program, &[&plugin.display().to_string(), "report"]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    check(&bench, &bench.trace());
}

#[test]
fn without_rccl_a_call_of_it_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    let main = r"
        int ncclGroupStart(void) WEAK;
        int main(void) { return ncclGroupStart ? ncclGroupStart() : 9; }";
    let program = bench.program_with("program", main, &["-Wl,-z,dynamic-undefined-weak"]);
    assert_eq!(exit_code(&run(&mut std::process::Command::new(&program))), 9, "the program alone sees that");
    assert_eq!(exit_code(&bench.run(&program, &[])), 2);
    assert!(bench.trace().shard.processes.is_empty(), "nothing was to be recorded");
}

#[test]
fn a_library_that_is_unloaded_and_loaded_again_is_found_again() {
    let Some(bench) = Bench::new() else { return };
    let library = r#"
int ncclGetVersion(int *version) { *version = 22000; return 0; }
int ncclGroupStart(void) { return 0; }
"#;
    let library = bench.library_of("librccl.so", library);
    let plugin = "int ncclGroupStart(void); int use(void) { return ncclGroupStart(); }";
    let plugin = bench.linked_library("libplugin.so", plugin, &library);
    // A library that was unloaded is loaded at another address, because its old one is taken.
    let source = r#"
#include <dlfcn.h>
#include <sys/mman.h>
static void *use(const char *path) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    int (*function)(void) = (int (*)(void))dlsym(plugin, "use");
    Dl_info place;
    if (!function || function() || !dladdr(dlsym(plugin, "ncclGetVersion"), &place)) exit(1);
    dlclose(plugin);
    return place.dli_fbase;
}
int main(int argc, char **argv) {
    if (argc < 2) return 1;
    void *base = use(argv[1]);
    mmap(base, 4 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    use(argv[1]);
    return 0;
}
"#;
    let program = bench.program("loads", source);
    let output = bench.run(&program, &[plugin.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    assert_eq!(bench.trace().rccl_calls.len(), 2);
}

#[test]
fn a_hidden_library_is_found_from_a_small_stack() {
    let Some(bench) = Bench::new() else { return };
    let library = r#"
int ncclGetVersion(int *version) { *version = 22000; return 0; }
int ncclGroupStart(void) { return 0; }
"#;
    let library = bench.library_of("librccl.so", library);
    let plugin =
        "int ncclGroupStart(void); void *use(void *unused) { return ncclGroupStart() ? 0 : unused; }";
    let plugin = bench.linked_library("libplugin.so", plugin, &library);
    let source = r#"
#include <dlfcn.h>
#include <limits.h>
int main(int argc, char **argv) {
    void *plugin = argc < 2 ? 0 : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *result;
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    if (!plugin || pthread_create(&thread, &attributes, (void *(*)(void *))dlsym(plugin, "use"), argv)) return 1;
    pthread_join(thread, &result);
    return result == argv ? 0 : 2;
}
"#;
    let program = bench.program("small", source);
    let output = bench.run(&program, &[plugin.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    assert_eq!(bench.trace().rccl_calls.len(), 1);
}
