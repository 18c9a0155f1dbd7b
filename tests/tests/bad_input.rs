//! What cannot be merged is refused in one clear line, and leaves nothing behind.

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_tests::content::{ContentTables, content};
use rpd_tests::harness::{
    Database, Job, RunFolder, assert_refused, binary, leftovers, losses, rpd_merge, skip,
};
use rpd_tests::synthetic::{SyntheticRun, write_shards};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Looks like a database that a merge made.
fn old_merge() -> Vec<u8> {
    let mut header = b"SQLite format 3\0".to_vec();
    header.resize(100, 1);
    header[68..72].copy_from_slice(b"rpdm");
    header
}

fn small() -> RunFolder {
    RunFolder::new(&SyntheticRun::default())
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("?")
}

fn assert_nothing_left(folder: &Path) {
    assert_eq!(leftovers(folder), Vec::<PathBuf>::new());
}

#[test]
fn an_empty_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = rpd_merge().arg(folder.path()).run();
    assert_refused(&outcome, 4, &[&folder.path().to_string_lossy(), "rpd-collect"]);
    assert_nothing_left(folder.path());
}

#[test]
fn an_input_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = rpd_merge().arg(folder.path().join("rank-00000.rpdshard")).folder(folder.path()).run();
    assert_refused(&outcome, 4, &["rank-00000.rpdshard", "check"]);
    assert_nothing_left(folder.path());
}

#[test]
fn no_input_and_no_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = rpd_merge().folder(folder.path()).run();
    assert_refused(&outcome, 4, &["rpd-out"]);
}

#[test]
fn without_input_the_newest_run_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("rpd-out");
    for seed in [1, 2] {
        write_shards(&SyntheticRun { seed, ..SyntheticRun::default() }.plan(), &root).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = rpd_merge().folder(folder.path()).run().success();
    assert_eq!(leftovers(&root), [root.join("synthetic-2.0/trace.db")]);
}

#[test]
fn a_wrong_command_line_is_refused() {
    let outcome = rpd_merge().arg("--no-such-option").run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    let outcome = rpd_merge().args(["--threads", "0"]).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
}

#[test]
fn a_file_that_is_no_shard_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (file, bytes) in [
        ("notes.rpdshard", b"Dear diary, today I profiled a job.".repeat(50)),
        ("empty.rpdshard", Vec::new()),
        ("zeros.rpdshard", vec![0; 100_000]),
    ] {
        let path = folder.path().join(file);
        fs::write(&path, bytes).unwrap();
        let outcome = rpd_merge().arg(&path).run();
        assert_refused(&outcome, 4, &[file]);
    }
    let outcome = rpd_merge().arg(folder.path()).run();
    assert_refused(&outcome, 4, &[".rpdshard"]);
    assert_nothing_left(folder.path());
}

#[test]
fn a_file_that_is_no_shard_among_good_ones_is_left_out_and_told() {
    let run = small();
    fs::write(run.path.join("rank-00009.rpdshard"), b"RPDSHARX nonsense").unwrap();
    let outcome = rpd_merge().arg(&run.path).run().success();
    assert!(outcome.stderr.contains("rank-00009.rpdshard"), "{outcome}");
    let outcome = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_refused(&outcome, 3, &["rank-00009.rpdshard"]);
}

#[test]
fn what_the_error_of_strict_says_is_not_a_warning_before_it() {
    let run = small();
    fs::write(run.path.join("rank-00008.rpdshard"), b"RPDSHARX nonsense").unwrap();
    fs::write(run.path.join("rank-00009.rpdshard"), b"RPDSHARX nonsense").unwrap();
    let outcome = rpd_merge().arg("--strict").arg(&run.path).run();
    assert_refused(&outcome, 3, &["rank-00008.rpdshard"]);
    for name in ["rank-00008.rpdshard", "rank-00009.rpdshard"] {
        let lines = outcome.stderr.lines().filter(|line| line.contains(name)).count();
        assert_eq!(lines, 1, "{name}: {outcome}");
    }
    let missing = RunFolder::new(&SyntheticRun { missing_rank: Some(2), ..SyntheticRun::default() });
    let outcome = rpd_merge().arg("--strict").arg(&missing.path).run();
    assert_refused(&outcome, 3, &["nothing of rank 2", "did its collector start"]);
    assert_eq!(outcome.stderr.matches("nothing of rank 2").count(), 1, "{outcome}");
}

#[test]
fn a_name_with_a_line_end_takes_one_line() {
    let run = small();
    fs::write(run.path.join("a\nerror: b\x1b[2J.rpdshard"), b"RPDSHARX nonsense").unwrap();
    let outcome = rpd_merge().arg(&run.path).run().success();
    assert!(outcome.stderr.contains("a\\nerror: b\\u{1b}[2J.rpdshard"), "{outcome}");
    assert!(!outcome.stderr.contains('\x1b'), "{outcome}");
    assert!(!outcome.stderr.lines().any(|line| line.starts_with("error:")), "{outcome}");
    let outcome = rpd_merge().arg("--force").arg(run.path.join("none\nhere.db")).run();
    assert_refused(&outcome, 4, &["none\\nhere.db"]);
}

#[test]
fn a_name_that_is_no_utf_8_costs_that_file_alone() {
    let run = small();
    let odd = |name: &[u8]| OsString::from_vec(name.to_vec());
    let shard = run.path.join(odd(b"caf\xe9.rpdshard"));
    let database = run.path.join(odd(b"caf\xe9.db"));
    fs::rename(run.shard(3), &shard).unwrap();
    fs::write(&database, old_merge()).unwrap();
    for arguments in [&["--dry-run"][..], &["--force"], &["--force", "--json"]] {
        let outcome = rpd_merge().args(arguments).arg(&run.path).run().success();
        for name in
            ["caf\\xe9.rpdshard has a name that is not UTF-8", "caf\\xe9.db is a SQLite database whose"]
        {
            assert_eq!(outcome.stderr.matches(name).count(), 1, "{outcome}");
        }
        assert!(outcome.stderr.contains("left out   2 inputs"), "{outcome}");
    }
    assert_eq!(run.database().metadata()["rpd.missing_ranks"], ["[3]"]);
    let strict = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_refused(&strict, 3, &["caf\\xe9"]);
    // Named itself, as input or output.
    assert_refused(&rpd_merge().arg("--force").arg(&shard).run(), 4, &["caf\\xe9.rpdshard", "not UTF-8"]);
    let place = run.beside("place");
    fs::create_dir(&place).unwrap();
    for format in ["rocpd", "rpd", "perfetto", "chrome-json"] {
        let outcome =
            rpd_merge().args(["--format", format, "-o"]).arg(place.join(odd(b"o\xe9"))).arg(&run.path);
        assert_refused(&outcome.run(), 5, &["o\\xE9", "not UTF-8"]);
    }
    let folder = run.beside("folder").with_file_name(odd(b"f\xe9"));
    fs::create_dir(&folder).unwrap();
    fs::copy(run.shard(0), folder.join("rank-00000.rpdshard")).unwrap();
    assert_refused(&rpd_merge().arg(&folder).run(), 4, &["f\\xe9", "not UTF-8"]);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn a_variable_that_is_no_utf_8_is_no_hindrance() {
    let run = small();
    let outcome = rpd_merge().env("X", OsString::from_vec(b"caf\xe9".to_vec())).arg(&run.path).run();
    let _ = outcome.success();
}

#[test]
fn a_shard_of_another_run_is_refused() {
    let run = small();
    let other = RunFolder::new(&SyntheticRun { seed: 2, ..SyntheticRun::default() });
    fs::copy(other.shard(3), run.path.join("rank-00007.rpdshard")).unwrap();
    let outcome = rpd_merge().arg(&run.path).run();
    assert_refused(&outcome, 4, &["rank-00007.rpdshard", "synthetic-1.0", "synthetic-2.0"]);
    assert_nothing_left(&run.path);
    let outcome = rpd_merge().args([run.shard(0), other.shard(1)]).run();
    assert_refused(&outcome, 4, &["synthetic-1.0", "synthetic-2.0"]);
}

#[test]
fn a_newer_format_version_is_refused_by_number() {
    let run = small();
    let mut bytes = fs::read(run.shard(2)).unwrap();
    bytes[8] = 9;
    let sum = twox_hash::XxHash3_64::oneshot(&bytes[..24]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    fs::write(run.shard(2), &bytes).unwrap();
    let outcome = rpd_merge().arg(&run.path).run();
    assert_refused(&outcome, 4, &["rank-00002.rpdshard", "version 9"]);
    assert_nothing_left(&run.path);
}

#[test]
fn a_missing_rank_is_told_and_fatal_under_strict_only() {
    let run = RunFolder::new(&SyntheticRun { missing_rank: Some(2), ..SyntheticRun::default() });
    let outcome = rpd_merge().arg("--strict").arg(&run.path).run();
    assert_refused(&outcome, 3, &["rank 2"]);
    assert_nothing_left(&run.path);
    let outcome = rpd_merge().arg(&run.path).run().success();
    let told =
        outcome.stderr.lines().filter(|line| line.starts_with("warning:") && line.contains("rank 2")).count();
    assert_eq!(told, 1, "{outcome}");
    assert_eq!(run.database().metadata()["rpd.missing_ranks"], ["[2]"]);
}

/// Rows in every table of a merge, and rows that its ledger names per table of the shard.
fn rows_and_losses(database: &Database) -> (ContentTables, Vec<(Option<String>, String, i64)>) {
    (ContentTables::of_database(&database.connection).unwrap(), losses(database))
}

#[test]
fn a_shard_cut_in_the_middle_is_merged_as_far_as_it_goes() {
    let run = small();
    let whole = ContentTables::of_database(&run.merged().connection).unwrap();
    let bytes = fs::read(run.shard(1)).unwrap();
    for percent in [95, 70, 40] {
        fs::write(run.shard(1), &bytes[..bytes.len() * percent / 100]).unwrap();
        let outcome = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
        assert_refused(&outcome, 3, &["rank-00001.rpdshard"]);
        let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
        assert!(outcome.stderr.contains("rank-00001.rpdshard"), "{outcome}");
        let database = run.database();
        database.assert_sound();
        let (rows, losses) = rows_and_losses(&database);
        assert!(
            losses.iter().any(|(_, cause, _)| cause == "truncated") || percent == 95,
            "{percent} %: {losses:?}"
        );
        assert!(rows.rows("rocpd_event") <= whole.rows("rocpd_event"));
        // The other ranks are whole.
        assert!(rows.rows("rocpd_event") * 4 >= whole.rows("rocpd_event") * 3 - 40);
    }
}

/// The shard with one byte of the payload of a block of this table changed; how many rows it had.
fn flip(bytes: &[u8], wanted: BlockKind, portion: usize) -> (Vec<u8>, u32) {
    let shard = Shard::from_memory("s", bytes).unwrap();
    let block = shard.blocks().iter().filter(|block| block.header.kind == wanted).nth(portion);
    let block = block.unwrap_or_else(|| panic!("no block {portion} of {wanted:?}"));
    let mut flipped = bytes.to_vec();
    flipped[block.end() as usize - 3] ^= 0x10;
    (flipped, block.header.rows)
}

#[test]
fn a_flipped_byte_costs_one_block_and_the_ledger_says_so() {
    use rpd_shard::model::{native, rocpd};
    let run = small();
    let bytes = fs::read(run.shard(2)).unwrap();
    let whole = ContentTables::of_database(&run.merged().connection).unwrap();
    let tables = [
        (rocpd::KERNEL_DISPATCH, "rocpd_kernel_dispatch"),
        (rocpd::EVENT, "rocpd_event"),
        (rocpd::INFO_THREAD, "rocpd_info_thread"),
        (rocpd::INFO_STREAM, "rocpd_info_stream"),
        (rocpd::INFO_KERNEL_SYMBOL, "rocpd_info_kernel_symbol"),
        (rocpd::TRACK, "rocpd_track"),
        (native::RANGE, "range"),
        (native::MPI_CALL, "mpi_call"),
        (rocpd::STRING, "rocpd_string"),
    ];
    for (table, name) in tables {
        for portion in [0, 1] {
            let blocks = Shard::from_memory("s", &bytes).unwrap();
            let of_table = blocks.blocks().iter().filter(|b| b.header.kind == BlockKind::Rows(table)).count();
            if portion >= of_table {
                continue;
            }
            let (flipped, lost) = flip(&bytes, BlockKind::Rows(table), portion);
            fs::write(run.shard(2), &flipped).unwrap();
            let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
            assert!(outcome.stderr.contains("rank-00002.rpdshard"), "{outcome}");
            let database = run.database();
            database.assert_sound();
            let (rows, losses) = rows_and_losses(&database);
            let damaged = (Some(name.to_owned()), "damaged_block".to_owned(), i64::from(lost));
            assert_eq!(losses, [damaged], "{name}, block {portion}");
            // Rows in = rows out + rows in the ledger; what referred to them is still there.
            for (other, before) in &whole.tables {
                let (before, now) = (before.len(), rows.rows(other));
                match other.as_str() {
                    // A placeholder may stand for lost rows.
                    same if same == name && table != rocpd::STRING => {
                        let most = before - lost as usize + 1;
                        assert!(
                            now == most || now == most - 1,
                            "{other} after a loss in {name}: {before} to {now}"
                        );
                    }
                    "rocpd_string" => {}
                    _ if table.0 < 64 => {
                        assert!(
                            now == before || now == before + 1,
                            "{other} after a loss in {name}: {before} to {now}"
                        );
                    }
                    _ => assert!(now <= before, "{other} after a loss in {name}: {before} to {now}"),
                }
            }
        }
    }
    let outcome = rpd_merge().args(["--force", "--strict"]).arg(&run.path).run();
    assert_refused(&outcome, 3, &["damaged"]);
}

#[test]
fn an_output_that_is_there_is_kept_without_force() {
    let run = small();
    fs::write(run.path.join("trace.db"), old_merge()).unwrap();
    let outcome = rpd_merge().arg(&run.path).run();
    assert_refused(&outcome, 5, &["trace.db", "--force"]);
    assert_eq!(fs::read(run.path.join("trace.db")).unwrap(), old_merge());
    let _ = rpd_merge().arg("--force").arg(&run.path).run().success();
    run.database().assert_sound();
}

#[test]
fn a_failed_merge_keeps_the_output_that_was_there() {
    let run = small();
    fs::write(run.path.join("trace.db"), old_merge()).unwrap();
    let other = RunFolder::new(&SyntheticRun { seed: 2, ..SyntheticRun::default() });
    fs::copy(other.shard(3), run.path.join("rank-00007.rpdshard")).unwrap();
    let outcome = rpd_merge().arg("--force").arg(&run.path).run();
    assert_refused(&outcome, 4, &["rank-00007.rpdshard"]);
    assert_eq!(fs::read(run.path.join("trace.db")).unwrap(), old_merge());
}

#[test]
fn an_output_below_a_file_or_in_no_directory_is_refused() {
    let run = small();
    let file = run.beside("file");
    fs::write(&file, "a file").unwrap();
    for output in [file.join("trace.db"), run.beside("nowhere/trace.db"), run.path.clone()] {
        let outcome = rpd_merge().arg("-o").arg(&output).arg(&run.path).run();
        assert_refused(&outcome, 5, &[&output.to_string_lossy()]);
        assert_nothing_left(&run.path);
    }
}

/// Runs `rpd-merge ARGS` where `folder` is a tmpfs mounted with these options, and lists that folder
/// on stdout. `None` where nothing may be mounted.
fn on_tmpfs(folder: &Path, options: &str, args: &[&Path]) -> Option<rpd_tests::harness::JobOutcome> {
    let script = "mount -t tmpfs -o \"$1\" tmpfs \"$2\" || exit 99; folder=$2; shift 2; \"$@\"; code=$?; \
                  ls -A \"$folder\" >&1; exit $code";
    let user =
        if rustix::process::geteuid().is_root() { &["--mount"][..] } else { &["--mount", "--map-root-user"] };
    let job = Job::new("unshare").args(user).args(["sh", "-c", script, "sh", options]).arg(folder);
    let outcome = job.arg(binary("rpd-merge")).args(args).run();
    let refused = outcome.code() == Some(99) || outcome.stderr.contains("unshare");
    (!refused).then_some(outcome)
}

#[test]
fn an_unwritable_directory_is_refused() {
    let run = small();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace.db");
    match on_tmpfs(folder.path(), "ro,size=1m", &[Path::new("-o"), &output, &run.path]) {
        None => skip("an unwritable directory", "a tmpfs cannot be mounted here"),
        Some(outcome) => assert_refused(&outcome, 5, &[&output.to_string_lossy()]),
    }
}

#[test]
fn a_full_output_disk_leaves_no_file_behind() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 3_000, ..SyntheticRun::default() });
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace.db");
    match on_tmpfs(folder.path(), "size=1m", &[Path::new("-o"), &output, &run.path]) {
        None => skip("a full output disk", "a tmpfs cannot be mounted here"),
        Some(outcome) => {
            assert_refused(&outcome, 5, &[&output.to_string_lossy(), "disk is full"]);
            assert_eq!(outcome.stdout, "", "left on the full disk: {outcome}");
        }
    }
}

#[test]
fn a_stale_partial_file_of_a_killed_merge_is_cleared_away() {
    let run = small();
    let (partial, lock) = (run.path.join("trace.db.partial"), run.path.join("trace.db.lock"));
    let only_the_output = || {
        assert_eq!(leftovers(&run.path).iter().map(|path| name(path)).collect::<Vec<_>>(), ["trace.db"]);
    };
    for left in [Vec::new(), old_merge()] {
        fs::write(&partial, left).unwrap();
        let _ = rpd_merge().arg("--force").arg(&run.path).run().success();
        only_the_output();
    }
    // SQLite had not written the first page: the lock identifies the file.
    fs::write(&partial, [0; 4096]).unwrap();
    fs::write(&lock, "").unwrap();
    let _ = rpd_merge().arg("--force").arg(&run.path).run().success();
    only_the_output();
    run.database().assert_sound();
}

#[test]
fn the_order_of_inputs_changes_nothing() {
    let run = small();
    let whole = run.merged();
    let output = run.beside("other.db");
    let shards: Vec<_> = (0..4).rev().map(|rank| run.shard(rank)).collect();
    let _ = rpd_merge().arg("-o").arg(&output).args(&shards).run().success();
    let other = Database::open(&output);
    assert_eq!(rpd_tests::harness::dump_difference(&whole.dump(), &other.dump()), None);
    let same = |database: &Database| content(&ContentTables::of_database(&database.connection).unwrap());
    assert_eq!(same(&whole), same(&other));
}
