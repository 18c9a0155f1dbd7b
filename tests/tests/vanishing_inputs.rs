//! Inputs that vanish, shrink or become unreadable while they are merged: one line, the rest is merged, the
//! ledger has what they held.

use rpd_tests::databases::{DatabaseJob, left_out};
use rpd_tests::fixtures;
use rpd_tests::harness::{
    Database, Job, JobOutcome, RunFolder, assert_refused, dump_difference, leftovers, losses, losses_of_all,
    mpi_missing, rpd_merge, rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// At its n-th opening by a process something happens to the file with a path that ends with `$VANISHING`: it is
/// removed, cut to a half, or cannot be opened by this process any more. With `$VANISHING_RANK` only the openings by
/// that MPI rank count.
const VANISH: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int opened;
static int openat_of(int folder, const char *path) {
    int (*real)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    return real(folder, path, O_WRONLY | O_CLOEXEC);
}
static int gone(int folder, const char *path, long flags) {
    /* Neither a look at it nor its making is an opening. */
    if (flags & (O_PATH | O_CREAT)) return 0;
    const char *name = getenv("VANISHING"), *from = getenv("VANISHING_FROM"), *how = getenv("VANISHING_HOW");
    if (!name || !from || !how || strlen(path) < strlen(name)) return 0;
    if (strcmp(path + strlen(path) - strlen(name), name)) return 0;
    const char *rank = getenv("VANISHING_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
    if (!own) own = getenv("PMI_RANK");
    if (rank && *rank && (!own || strcmp(rank, own))) return 0;
    int nth = __atomic_add_fetch(&opened, 1, __ATOMIC_SEQ_CST);
    if (nth < atoi(from)) return 0;
    struct stat found;
    if (nth == atoi(from) && !strcmp(how, "removed")) unlinkat(folder, path, 0);
    if (nth == atoi(from) && !strcmp(how, "cut") && !fstatat(folder, path, &found, 0)) {
        int file = openat_of(folder, path);
        int failed = ftruncate(file, found.st_size / 2);
        close(file);
        if (failed) return 0;
    }
    errno = EACCES;
    return !strcmp(how, "refused");
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        int (*real)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, #name); \
        return gone(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        int (*real)(int, const char *, int, mode_t) = (int (*)(int, const char *, int, mode_t))dlsym(RTLD_NEXT, #name); \
        return gone(folder, path, flags) ? -1 : real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
/* openat2 has no function of its own. */
long syscall(long number, ...) {
    va_list list; va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_openat2 && gone((int)a[0], (const char *)a[1], *(unsigned long long *)a[2])) return -1;
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"#;

/// What a file goes by.
struct Vanishing {
    folder: TempDir,
}

impl Vanishing {
    /// `None` where no C compiler is.
    fn new() -> Option<Vanishing> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("vanish.c");
        fs::write(&source, VANISH).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(folder.path().join("vanish.so"))
            .arg(source)
            .arg("-ldl");
        let done = cc.status().is_ok_and(|status| status.success());
        if !done {
            skip("inputs that vanish", "no C compiler is here");
        }
        done.then_some(Vanishing { folder })
    }

    fn run(&self, job: Job, file: &str, how: &str, from: usize) -> JobOutcome {
        let job = job.env("LD_PRELOAD", self.folder.path().join("vanish.so")).env("VANISHING", file);
        job.env("VANISHING_HOW", how)
            .env("VANISHING_FROM", from.to_string())
            .limit(Duration::from_secs(30))
            .run()
    }
}

/// All tables and views but the metadata.
fn rows_of(path: &Path) -> String {
    let database = Database::open(path);
    database.assert_sound();
    let is_metadata = |line: &str| line.contains(" rocpd_metadata");
    let dump = database.dump();
    let mut kept = true;
    let lines = dump.lines().filter(|line| {
        if line.starts_with("table ") || line.starts_with("view ") {
            kept = !is_metadata(line);
        }
        kept
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// When it was noticed that a file went, by what the ledger has.
#[derive(PartialEq, Eq, Debug, Clone, Copy)]
enum Noticed {
    Never,
    InPlan,
    BeforeSurvey,
    AfterSurvey,
}

/// A folder of inputs, one of which goes.
struct Case {
    inputs: PathBuf,
    /// What users call the input.
    origin: String,
    whole: Vec<u8>,
    output: PathBuf,
    /// The rows of a merge of all, and of a merge of the others.
    all: String,
    rest: String,
}

impl Case {
    fn new(inputs: &Path, origin: &Path) -> Case {
        let output = inputs.parent().unwrap().join("out.db");
        let merge = || {
            let _ = rpd_merge().args(["--force", "-o"]).arg(&output).arg(inputs).run().success();
            rows_of(&output)
        };
        let whole = fs::read(origin).unwrap();
        let all = merge();
        fs::remove_file(origin).unwrap();
        let rest = merge();
        fs::write(origin, &whole).unwrap();
        fs::remove_file(&output).unwrap();
        let origin = origin.file_name().unwrap().to_str().unwrap().to_owned();
        Case { inputs: inputs.to_owned(), origin, whole, output, all, rest }
    }

    fn job(&self, ranks: usize) -> Job {
        let merge = if ranks > 1 { rpd_merge_mpi(ranks) } else { rpd_merge() };
        merge.args(["--force", "--threads", "1", "-o"]).arg(&self.output).arg(&self.inputs)
    }

    fn put_back(&self) {
        let origin = self.inputs.join(&self.origin);
        let _ = fs::remove_file(&origin);
        fs::write(origin, &self.whole).unwrap();
    }

    /// Checks what came of it, and puts the file back.
    fn check(&self, outcome: JobOutcome) -> Noticed {
        self.put_back();
        let outcome = outcome.success();
        assert!(!outcome.stderr.contains("error:"), "{outcome}");
        let is_about = |line: &&str| line.starts_with("warning:") && line.contains(&self.origin);
        let about = outcome.stderr.lines().filter(is_about).count();
        let rows = rows_of(&self.output);
        let database = Database::open(&self.output);
        let ledger = losses(&database);
        let noticed = if about == 0 {
            assert_eq!(dump_difference(&self.all, &rows), None, "{outcome}");
            assert_eq!((left_out(&database), ledger.len()), (0, 0), "{outcome}");
            Noticed::Never
        } else if left_out(&database) == 1 {
            assert_eq!(about, 1, "{outcome}");
            assert_eq!(dump_difference(&self.rest, &rows), None, "{outcome}");
            match ledger.first() {
                None => Noticed::InPlan,
                // It was cut before its format was looked at.
                Some((None, cause, -1)) if cause == "file_not_used" => Noticed::InPlan,
                Some((None, cause, -1)) if cause == "input_vanished" => Noticed::BeforeSurvey,
                Some(_) => {
                    let is_known = |(table, cause, rows): &(Option<String>, String, i64)| {
                        table.is_some() && cause == "input_vanished" && *rows > 0
                    };
                    assert!(ledger.iter().all(is_known), "{ledger:?} {outcome}");
                    Noticed::AfterSurvey
                }
            }
        } else {
            assert!(!ledger.is_empty(), "{outcome}");
            Noticed::InPlan
        };
        let mut left = leftovers(self.inputs.parent().unwrap());
        left.retain(|path| !path.starts_with(&self.inputs) && *path != self.output);
        assert_eq!(left, Vec::<PathBuf>::new(), "{outcome}");
        noticed
    }

    /// Lets the file go at each of these openings; returns when that was noticed. `file` is the end of the path
    /// that is opened.
    fn try_all(
        &self,
        vanishing: &Vanishing,
        file: &str,
        how: &str,
        openings: RangeInclusive<usize>,
    ) -> Vec<Noticed> {
        let noticed = |from| {
            eprintln!("{how} at opening {from} of {file}");
            let outcome = vanishing.run(self.job(1), file, how, from);
            self.check(outcome)
        };
        openings.map(noticed).collect()
    }
}

#[test]
fn a_database_that_vanishes_is_told_whenever_it_happens() {
    let Some(vanishing) = Vanishing::new() else { return };
    let job = DatabaseJob::small();
    // Nodes are deduplicated, and no rows of an input.
    let expected = losses_of_all(&job.inputs[2], "input_vanished", &["rocpd_metadata", "rocpd_info_node"]);
    let case = Case::new(&job.place(), &job.inputs[2]);
    let name = case.origin.clone();
    for how in ["removed", "cut", "refused"] {
        let all = case.try_all(&vanishing, &name, how, 1..=14);
        for noticed in [Noticed::Never, Noticed::InPlan, Noticed::BeforeSurvey, Noticed::AfterSurvey] {
            assert!(all.contains(&noticed), "{how}: {all:?}");
        }
        let after = 1 + all.iter().position(|noticed| *noticed == Noticed::AfterSurvey).unwrap();
        let outcome = vanishing.run(case.job(1), &name, how, after);
        assert_eq!(case.check(outcome), Noticed::AfterSurvey);
        let mut ledger = losses(&Database::open(&case.output));
        ledger.sort();
        assert_eq!(ledger, expected);
        fs::remove_file(&case.output).unwrap();
        let strict = vanishing.run(case.job(1).arg("--strict"), &name, how, after);
        case.put_back();
        assert_refused(&strict, 3, &[&name]);
        assert!(!case.output.exists());
    }
    // The same in the other layout, where each set has its own strings.
    for from in 1..=12 {
        let outcome = vanishing.run(case.job(1).args(["--layout", "partitioned"]), &name, "removed", from);
        case.put_back();
        let outcome = outcome.success();
        let left = usize::from(!outcome.stderr.contains("left out"));
        assert_eq!(Database::open(&case.output).count("rocpd_info_process"), 3 + left as i64, "{outcome}");
    }
}

#[test]
fn a_shard_that_vanishes_is_told_whenever_it_happens() {
    let Some(vanishing) = Vanishing::new() else { return };
    let run =
        RunFolder::new(&SyntheticRun { events_per_rank: 300, workers: true, ..SyntheticRun::default() });
    let case = Case::new(&run.path, &run.shard(1));
    for how in ["removed", "cut"] {
        let all = case.try_all(&vanishing, &case.origin, how, 1..=8);
        for noticed in [Noticed::Never, Noticed::InPlan, Noticed::BeforeSurvey, Noticed::AfterSurvey] {
            assert!(all.contains(&noticed), "{how}: {all:?}");
        }
    }
}

#[test]
fn what_an_input_was_translated_to_may_vanish_as_well() {
    let Some(vanishing) = Vanishing::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("in");
    let files = fixtures::rpd_files(&inputs);
    let [first, ..] = files.as_slice() else { return };
    let case = Case::new(&inputs, first);
    let all = case.try_all(&vanishing, "0.rpdshard", "removed", 1..=6);
    for noticed in [Noticed::BeforeSurvey, Noticed::AfterSurvey] {
        assert!(all.contains(&noticed), "{all:?}");
    }
}

#[test]
fn an_input_that_vanishes_is_left_out_by_all_mpi_ranks() {
    if let Some(why) = mpi_missing() {
        return skip("an input that vanishes under mpirun", why);
    }
    let Some(vanishing) = Vanishing::new() else { return };
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 1_500, ..SyntheticRun::default() });
    let job = DatabaseJob::new(&SyntheticRun { events_per_rank: 400, ..SyntheticRun::default() });
    // Rank 0 looks into all inputs, and reads the first ones; rank 1 reads the last ones.
    for (inputs, origin, rank, last) in [
        (&run.path, run.shard(0), "0", 7),
        (&run.path, run.shard(3), "1", 3),
        (&job.place(), job.inputs[0].clone(), "0", 12),
        (&job.place(), job.inputs[3].clone(), "1", 6),
    ] {
        let case = Case::new(inputs, &origin);
        let merge = || case.job(2).env("VANISHING_RANK", rank);
        for how in if rank == "0" { &["removed"][..] } else { &["removed", "cut"] } {
            let go = |from| case.check(vanishing.run(merge(), &case.origin, how, from));
            let all: Vec<Noticed> = (1..=last).map(go).collect();
            for noticed in [Noticed::BeforeSurvey, Noticed::AfterSurvey] {
                assert!(all.contains(&noticed), "{how} {}: {all:?}", case.origin);
            }
        }
        if rank == "1" {
            // Rank 0 can still read it.
            let outcome = vanishing.run(merge(), &case.origin, "refused", 1);
            assert!(outcome.stderr.contains("merge rank 1 cannot read"), "{outcome}");
            assert_eq!(case.check(outcome), Noticed::Never);
            let strict = vanishing.run(merge().arg("--strict"), &case.origin, "removed", 2);
            case.put_back();
            assert_eq!(strict.code(), Some(3), "{strict}");
            assert_eq!(strict.stderr.matches("error: ").count(), 1, "{strict}");
        }
    }
}
