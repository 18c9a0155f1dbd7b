//! A program that dies at any instruction: complete events are recorded, open ones stay open, except for the
//! one event that was being written.

use crate::support;
use rpd_shard::record::ProcessExit;
use support::{Bench, Trace, exit_code, number, run, text};

/// Pushes and pops at random. Records each in a shared file before and after it, until another process sends
/// the signal.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
struct progress { long pushes_begun, pushes, pops_begun, pops; };
int main(int argc, char **argv) {
    uint64_t seed = strtoull(argv[1], 0, 10);
    long micros = atol(argv[2]);
    int signal = atoi(argv[3]);
    int file = open(argv[4], O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, sizeof(struct progress))) return 1;
    volatile struct progress *p = mmap(0, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pid_t self = getpid();
    if (fork() == 0) { usleep(micros); kill(self, signal); _exit(0); }
    char names[32][32];
    for (int i = 0; i < 32; i++) snprintf(names[i], 32, "level %d %.*s", i, i / 2, "aaaaaaaaaaaaaaaaa");
    int depth = 0;
    for (long step = 0;; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int up = depth == 0 || (depth < 31 && seed >> 63);
        if (up) { p->pushes_begun++; roctxRangePushA(names[depth++]); p->pushes++; }
        else { p->pops_begun++; roctxRangePop(); p->pops++; depth--; }
        if (step % 1000 == 999) usleep(200);
    }
}
"#;

struct Progress {
    pushes_begun: i64,
    pushes: i64,
    pops_begun: i64,
    pops: i64,
}

fn progress(path: &std::path::Path) -> Progress {
    let bytes = std::fs::read(path).unwrap_or_default();
    let at =
        |i: usize| bytes.get(i * 8..i * 8 + 8).map_or(0, |word| i64::from_le_bytes(word.try_into().unwrap()));
    Progress { pushes_begun: at(0), pushes: at(1), pops_begun: at(2), pops: at(3) }
}

#[test]
fn whatever_a_program_dies_of_and_wherever_its_events_are_kept() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("victim", PROGRAM);
    let runs = if std::env::var_os("RPD_SOAK").is_some() { 1000 } else { 40 };
    let mut seen = 0;
    for point in 0..runs {
        let mut random = Stream(point);
        let (seed, micros) = (random.below(u64::MAX), random.below(30_000));
        let signal = [9, 11, 6, 15, 14][random.below(5) as usize];
        let file = bench.path(&format!("progress-{point}"));
        let arguments =
            [seed.to_string(), micros.to_string(), signal.to_string(), file.display().to_string()];
        let mut command = bench.collect();
        command.arg("--").arg(&program).args(arguments);
        let output = run(&mut command);
        assert_eq!(exit_code(&output), -signal, "point {point}: {output:?}");
        assert!(output.stdout.is_empty());
        let progress = progress(&file);
        let shard = bench.shard_path();
        let trace = Trace::read(&shard);
        std::fs::remove_dir_all(shard.parent().unwrap()).unwrap();
        if progress.pushes == 0 && trace.shard.processes.is_empty() {
            continue;
        }
        seen += 1;
        check(&trace, &progress, signal, point);
    }
    assert!(seen > runs / 2, "most programs lived long enough to do something: {seen} of {runs}");
}

fn check(trace: &Trace, progress: &Progress, signal: i32, point: u64) {
    assert!(trace.shard.complete(), "point {point}");
    let open: Vec<_> = trace.ranges.iter().filter(|row| row["end"].is_none()).collect();
    let closed = (trace.ranges.len() - open.len()) as i64;
    let emitted = trace.ranges.len() as i64 + trace.lost() as i64;
    assert!((progress.pushes..=progress.pushes_begun).contains(&emitted), "point {point}: {emitted}");
    if trace.lost() == 0 {
        assert!((progress.pops..=progress.pops_begun).contains(&closed), "point {point}: {closed}");
    }
    // The open ranges form one stack: each lies in the one before.
    let mut parent = 0;
    let mut last = String::new();
    for (depth, row) in open.iter().enumerate() {
        let name = text(row, "name_id").to_owned();
        assert_eq!(number(row, "parent_stack_id"), parent, "point {point}, open {depth}: {last} > {name}");
        parent = number(row, "stack_id");
        last = name;
    }
    assert_eq!(trace.shard.processes[&1].exit, Some(ProcessExit::Signal(signal)), "point {point}");
}

/// Random numbers that are equal in every run: SplitMix64.
struct Stream(u64);

impl Stream {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }
}
