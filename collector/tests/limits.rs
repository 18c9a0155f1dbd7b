//! A shard without space or without a folder: the program does not notice, and every event is in the shard or
//! in its ledger.

use crate::support;
use rpd_collect::{EventSpan, NameId, OutputBatch, OutputItem, ShardOutput, ShardPlace};
use rpd_shard::model::TableId;
use rpd_shard::model::native::RANGE;
use rpd_shard::model::rocpd::{INFO_THREAD, STRING};
use rpd_shard::record::{ClockDomain, ClockSet, LossCause, RunIdentity};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{Bench, TIME_LIMIT, Trace, exit_code, run};

/// Ranges that are in blocks before the flood, then ranges with names that compress badly. A line on stdout
/// and a status of its own.
const MANY_NAMES: &str = r#"
#include <sys/stat.h>
int main(int argc, char **argv) {
    struct stat shard = {0};
    stat("out/run/rank-00000.rpdshard", &shard);
    off_t header = shard.st_size;
    for (int i = 0; i < 300; i++) { roctxRangePushA("early"); roctxRangePop(); }
    /* Their block is written within a second. */
    while (stat("out/run/rank-00000.rpdshard", &shard) != 0 || shard.st_size <= header) usleep(1000);
    for (uint64_t i = 0; i < 100000; i++) {
        char name[40];
        snprintf(name, sizeof name, "%lx%lx", i * 0x9e3779b97f4a7c15, i * 0xc2b2ae3d27d4eb4f);
        if (i % 32 == 0) usleep(1); /* the collector keeps up, mostly */
        roctxRangePushA(name);
        roctxRangePop();
    }
    printf("100300 ranges");
    return 8;
}
"#;

fn place(root: &Path) -> ShardPlace {
    ShardPlace {
        ranks: rpd_shard::rank_set::RankSet::default(),
        root: root.to_owned(),
        run: RunIdentity {
            run_id: "run".to_owned(),
            run_id_from: "--run-id".to_owned(),
            rank: None,
            size: None,
            version: "0.1.0".to_owned(),
        },
        domain: domain(),
        max_bytes: 2 << 30,
        share_group: false,
        always: false,
    }
}

fn domain() -> ClockDomain {
    ClockDomain { boot_id: "b".to_owned(), time_namespace: 1 }
}

/// Rows that were lost without space, or dropped by a ring.
fn lost(trace: &Trace, table: TableId) -> u64 {
    let ledger = trace.shard.ledger.as_ref().expect("a ledger");
    ledger.losses.iter().filter(|loss| loss.table == Some(table)).filter_map(|loss| loss.rows).sum()
}

fn has_no_space(trace: &Trace) -> bool {
    let ledger = trace.shard.ledger.as_ref().expect("a ledger");
    ledger.losses.iter().any(|loss| loss.cause == LossCause::NoSpace)
}

/// Writes 200 threads with 1000 ranges each, all names different.
fn write_many(place: ShardPlace) {
    let (output, finished) = ShardOutput::start(place).expect("it starts");
    for thread in 1..=200 {
        let mut items = vec![OutputItem::Thread { source: 1, ppid: 1, tid: 7, name: "t".into(), start: 1 }];
        let set = ClockSet {
            domain: domain(),
            boottime: thread,
            monotonic_raw: 1,
            monotonic: 1,
            realtime: 1,
            bracket: 1,
        };
        items.push(OutputItem::Clock(Box::new(set)));
        let mut ranges = Vec::new();
        for i in 0..1000 {
            let number = ((thread - 1) * 1000 + i) as u32;
            let text = format!("{:x}", u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            items.push(OutputItem::Name(text.into_bytes().into()));
            let (start, name) = (i64::from(number), NameId(number));
            let span =
                EventSpan { source: 1, thread, start, end: Some(start + 5), name, stack: start, parent: 0 };
            ranges.push(span);
        }
        output.send(OutputBatch { items, ranges });
    }
    output.send(OutputBatch::of(vec![OutputItem::End]));
    finished.recv_timeout(TIME_LIMIT).expect("it finishes");
}

#[test]
fn a_shard_at_its_limit_is_complete_and_counts_what_it_left_out() {
    let folder = tempfile::tempdir().unwrap();
    for max_bytes in [20_000, 300_000, 1_000_000] {
        let root = folder.path().join(max_bytes.to_string());
        write_many(ShardPlace { max_bytes, ..place(&root) });
        let path = root.join("run/rank-00000.rpdshard");
        let length = path.metadata().unwrap().len();
        assert!(length <= max_bytes, "{length}");
        let trace = Trace::read(&path);
        assert!(has_no_space(&trace) && trace.shard.damage().is_empty());
        assert_eq!(trace.ranges.len() as u64 + lost(&trace, RANGE), 200_000);
        assert_eq!(trace.threads.len() as u64 + lost(&trace, INFO_THREAD), 200);
        let strings = trace.shard.strings().0.iter().count() as u64;
        assert_eq!(strings + lost(&trace, STRING), 200_000);
        assert_eq!(trace.shard.clocks.last().unwrap().boottime, 200, "clocks go on");
        // A limit with room for some blocks is used.
        assert!(max_bytes < 1_000_000 || !trace.ranges.is_empty());
    }
    let root = folder.path().join("enough");
    write_many(place(&root));
    let trace = Trace::read(&root.join("run/rank-00000.rpdshard"));
    assert_eq!((trace.ranges.len(), trace.lost()), (200_000, 0));
}

#[test]
fn files_are_private_or_the_group_may_read_them() {
    let folder = tempfile::tempdir().unwrap();
    for (share_group, folder_mode, file_mode) in [(false, 0o700, 0o600), (true, 0o750, 0o640)] {
        let root = folder.path().join(format!("shared-{share_group}"));
        write_many(ShardPlace { share_group, ..place(&root) });
        let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        // A umask may remove more.
        assert_eq!(mode("run") & !folder_mode, 0);
        assert_eq!(mode("run/rank-00000.rpdshard") & !file_mode, 0);
        assert_eq!(mode("run") & 0o700, 0o700);
        let umask = Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
        if umask.ends_with(b"022\n") {
            assert_eq!((mode("run"), mode("run/rank-00000.rpdshard")), (folder_mode, file_mode));
        }
    }
}

#[test]
fn what_is_shared_is_so_whatever_the_umask_and_also_if_the_log_came_first() {
    let Some(bench) = Bench::new() else { return };
    for size in ["1G", "much"] {
        let shell = format!("umask 077; export RANK=0 WORLD_SIZE=1 RPD_MAX_SIZE={size}; exec \"$@\"");
        let output = run(&mut collect_in(&bench, &shell, &["--share", "group", "--ask-merge", "--", "true"]));
        assert!(output.status.success(), "{output:?}");
        let mode = |path: &str| bench.path(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(["out", "out/run"].map(mode), [0o750; 2], "{size}");
        for name in ["merge.wanted", "rank-00000.rpdshard"] {
            assert_eq!(mode(&format!("out/run/{name}")), 0o640, "{name}");
        }
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

/// Returns `rpd-collect` after a command of the shell, which has it as `"$@"`.
fn collect_in(bench: &Bench, shell: &str, arguments: &[&str]) -> Command {
    let collect = bench.collect();
    let mut command = Command::new("sh");
    command.args(["-c", shell, "sh"]).arg(collect.get_program());
    for (name, value) in collect.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(collect.get_args()).args(arguments).current_dir(bench.path(""));
    command
}

/// The program has not noticed, one warning has the reason, and all ranges are accounted for. `log` is the
/// content of the rank's log, if the disk had room for one.
fn check_full(output: &std::process::Output, trace: &Trace, log: Option<String>, said: &str) {
    assert_eq!(exit_code(output), 8, "{output:?}");
    assert_eq!(output.stdout, b"100300 ranges");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let text = log.filter(|log| !log.is_empty()).unwrap_or(stderr.into_owned());
    // Such a small ring may drop some ranges as well, with a warning of its own.
    let of_space = text.lines().filter(|line| !line.contains("--ring-size"));
    assert_eq!(of_space.count(), 1, "{text}");
    assert!(text.contains(said) && text.contains("what follows is not recorded, only counted"), "{text}");
    assert!(trace.shard.complete() && trace.shard.damage().is_empty());
    assert!(has_no_space(trace));
    assert_eq!(trace.ranges.len() as u64 + lost(trace, RANGE), 100_300);
    assert_eq!(trace.ranges_named("early"), 300, "what was written before stays");
    assert_eq!((trace.threads.len(), lost(trace, INFO_THREAD)), (1, 0));
    assert!(trace.shard.processes[&1].exit.is_some(), "the end of the process is there");
}

#[test]
fn a_limit_on_file_sizes_leaves_a_complete_shard() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("many", MANY_NAMES);
    let program = program.to_str().unwrap();
    // In blocks of 512 bytes or 1 KiB, depending on the shell. A ring of 32 KiB with its header fits.
    for limit in ["150", "600"] {
        let shell = format!("ulimit -f {limit}; exec \"$@\"");
        let output = run(&mut collect_in(&bench, &shell, &["--ring-size", "32768", "--", program]));
        let log = std::fs::read_to_string(bench.path("out/run/rank-00000.log")).ok();
        check_full(&output, &bench.trace(), log, "File too large");
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_a_complete_shard() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("many", MANY_NAMES);
    std::fs::create_dir(bench.path("out")).unwrap();
    std::fs::create_dir(bench.path("kept")).unwrap();
    let disks = [
        ("tmpfs", "mount -t tmpfs -o size=600k none out"),
        ("ext4", "truncate -s 1M disk && mkfs.ext4 -q -O ^has_journal disk && mount -o loop disk out"),
    ];
    for (name, mount) in disks {
        // Mounted only for this process tree, and unmounted with its last process.
        let can =
            Command::new("unshare").args(["-m", "sh", "-c", mount]).current_dir(bench.path("")).output();
        if !can.as_ref().is_ok_and(|tried| tried.status.success()) {
            eprintln!("skipped: no {name} can be mounted here: {can:?}");
            continue;
        }
        let shell = format!(
            "unshare -m sh -c '{mount} && \"$@\"; code=$?; cp -r out/run kept/{name}; exit $code' sh \"$@\""
        );
        let output = run(&mut collect_in(&bench, &shell, &["--", program.to_str().unwrap()]));
        let kept = bench.path("kept").join(name);
        let log = std::fs::read_to_string(kept.join("rank-00000.log")).ok();
        check_full(&output, &Trace::read(&kept.join("rank-00000.rpdshard")), log, "No space left on device");
    }
}

#[test]
fn a_folder_that_is_deleted_during_the_run_is_said() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
int main(int argc, char **argv) {
    while (access(argv[1], F_OK) != 0) { roctxRangePushA("a"); roctxRangePop(); usleep(1000); }
    if (system("rm -r out") != 0) return 1;
    for (int i = 0; i < 1000; i++) { roctxRangePushA("b"); roctxRangePop(); }
    printf("done");
    return 3;
}
"#;
    let program = bench.program("deletes", source);
    let output = bench.run(&program, &[bench.shard_path().to_str().unwrap()]);
    assert_eq!((exit_code(&output), output.stdout.as_slice()), (3, b"done".as_slice()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.lines().count() == 1 && text.contains("was deleted while it was written"), "{text}");
    assert!(!bench.path("out").exists(), "nobody makes it again");
}
