//! Builds small C programs, runs them under rpd-collect with a time limit, and reads shards back.

pub(crate) mod cgroup;
pub(crate) mod counters;

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::native::{COMMUNICATOR, MARK, MPI_CALL, RANGE, RCCL_CALL};
use rpd_shard::model::rocpd::{EVENT, INFO_THREAD, SAMPLE, TRACK};
use rpd_shard::model::{Kind, TableId, Value};
use rpd_shard::record::Loss;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Maximum duration of a run. A longer one hangs.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Declarations that every program needs. They are weak, so that the program also runs without the library.
const PROLOGUE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define WEAK __attribute__((weak))
int roctxRangePushA(const char *) WEAK;
int roctxRangePop(void) WEAK;
uint64_t roctxRangeStartA(const char *) WEAK;
void roctxRangeStop(uint64_t) WEAK;
void roctxMarkA(const char *) WEAK;
"#;

/// A folder with a program, and everything that its runs leave.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Bench {
    /// `None`, with a message, if a test cannot run.
    pub(crate) fn new() -> Option<Bench> {
        let compiler = Command::new("cc").arg("--version").stdout(Stdio::null()).status();
        if !compiler.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no C compiler `cc`");
            return None;
        }
        Some(Bench { folder: tempfile::tempdir().unwrap(), library: library() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles the body of a program.
    pub(crate) fn program(&self, name: &str, source: &str) -> PathBuf {
        self.compile(name, source, &[])
    }

    /// Compiles the body of a program with options.
    pub(crate) fn program_with(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        self.compile(name, source, options)
    }

    /// Compiles a shared library that needs another one.
    pub(crate) fn linked_library(&self, name: &str, source: &str, library: &Path) -> PathBuf {
        self.compile(name, source, &["-shared", "-fPIC", &library.display().to_string()])
    }

    /// Compiles a shared library.
    pub(crate) fn library_of(&self, name: &str, source: &str) -> PathBuf {
        self.compile(name, source, &["-shared", "-fPIC"])
    }

    /// Compiles a program that needs a library.
    pub(crate) fn linked_program(&self, name: &str, source: &str, library: &Path) -> PathBuf {
        let folder = format!("-Wl,-rpath,{}", self.folder.path().display());
        self.compile(name, source, &["-Wl,--no-as-needed", &library.display().to_string(), &folder])
    }

    fn compile(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let (path, file) = (self.path(name), self.path(&format!("{name}.c")));
        std::fs::write(&file, format!("{PROLOGUE}{source}")).unwrap();
        let mut compiler = Command::new("cc");
        let built =
            compiler.args(["-O1", "-pthread", "-o"]).arg(&path).arg(&file).args(options).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        path
    }

    /// `rpd-collect -o <folder>/out --run-id run`, without the variables of this machine's launchers.
    pub(crate) fn collect(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rpd-collect"));
        let launchers = ["SLURM_", "PMI", "OMPI_", "RPD_", "TORCHELASTIC_", "RANK", "LD_PRELOAD"];
        for (name, _) in std::env::vars() {
            if launchers.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.env("RPD_INTERCEPT", &self.library).arg("-o").arg(self.path("out")).args(["--run-id", "run"]);
        command.current_dir(self.folder.path());
        command
    }

    /// Environment and folder of [`Bench::collect`] for a command that runs it.
    pub(crate) fn like_collect<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for (name, value) in self.collect().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.folder.path())
    }

    /// Runs a program with arguments under rpd-collect.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut command = self.collect();
        run(command.arg("--").arg(program).args(arguments))
    }

    pub(crate) fn shard_path(&self) -> PathBuf {
        self.path("out/run/rank-00000.rpdshard")
    }

    /// Returns the collector's messages about rank 0.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("out/run/rank-00000.log")).unwrap_or_default()
    }

    pub(crate) fn trace(&self) -> Trace {
        Trace::read(&self.shard_path())
    }
}

/// Runs a command to its end, or kills it at the time limit.
pub(crate) fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    wait(child)
}

pub(crate) fn wait(child: std::process::Child) -> Output {
    let pid = child.id();
    let (done, finished) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let began = Instant::now();
        if finished.recv_timeout(TIME_LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            panic!("still running after {:?}", began.elapsed());
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watchdog.join().expect("within the time limit");
    output
}

/// The two processes that an rpd-collect has started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below {
    pub(crate) collector: u32,
    pub(crate) command: u32,
}

/// Finds both processes. They exist once the command has printed something, but one may just be executing
/// another file: it may start through a shell.
pub(crate) fn below(pid: u32) -> Below {
    let find = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        // A thread may end between its listing and the reading of its file.
        let children = tasks.map(|task| std::fs::read_to_string(task?.path().join("children")));
        let children: String = children.map(Result::unwrap_or_default).collect();
        let all = children.split_whitespace().map(|pid| pid.parse().unwrap());
        let collects = |pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.ends_with(b"__collect\0")
        };
        let (collectors, others): (Vec<u32>, Vec<u32>) = all.partition(collects);
        match (collectors.as_slice(), others.as_slice()) {
            ([collector], [command]) => Some(Below { collector: *collector, command: *command }),
            _ => None,
        }
    };
    let mut found = None;
    until("one collector and one command", || {
        found = find();
        found.is_some()
    });
    found.unwrap()
}

/// Sends a signal from a separate process, like a user's `kill`.
pub(crate) fn kill(pid: u32, signal: i32) {
    Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
}

/// Waits for something that must happen.
pub(crate) fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < TIME_LIMIT, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the Yama security module restricts the reading of other processes.
pub(crate) fn yama_restricts() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    !matches!(level.trim(), "" | "0")
}

/// The exit code, or minus the signal.
pub(crate) fn exit_code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| -output.status.signal().unwrap())
}

/// The library of this build, which is a dev-dependency.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let path = folder.join("librpd_intercept.so");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

/// A row, with names resolved.
pub(crate) type Row = BTreeMap<String, Option<String>>;

/// A shard that was read.
pub(crate) struct Trace {
    pub(crate) shard: Shard,
    pub(crate) threads: Vec<Row>,
    pub(crate) ranges: Vec<Row>,
    pub(crate) marks: Vec<Row>,
    pub(crate) calls: Vec<Row>,
    pub(crate) rccl_calls: Vec<Row>,
    pub(crate) communicators: Vec<Row>,
    pub(crate) tracks: Vec<Row>,
    pub(crate) samples: Vec<Row>,
    pub(crate) events: Vec<Row>,
}

impl Trace {
    pub(crate) fn read(path: &Path) -> Trace {
        let shard = Shard::open(path).unwrap();
        let (strings, damaged) = shard.strings();
        assert!(damaged.is_empty());
        let table = |wanted: TableId| {
            let mut rows = Vec::new();
            for block in shard.blocks().iter().filter(|block| block.header.kind == BlockKind::Rows(wanted)) {
                let block_rows = shard.rows(block).unwrap();
                let description = shard.schema().get(wanted).unwrap();
                for i in 0..block_rows.len {
                    let mut row = Row::new();
                    row.insert("source".to_owned(), Some(block.header.source.to_string()));
                    row.insert("key".to_owned(), Some(block_rows.keys.get(i).to_string()));
                    for column in &description.columns {
                        let value = match (block_rows.column(&column.name).get(i), &column.kind) {
                            (Value::Null, _) => None,
                            (Value::Int(id), Kind::Str) => {
                                Some(String::from_utf8_lossy(strings.get(id).unwrap()).into_owned())
                            }
                            (Value::Int(value), _) => Some(value.to_string()),
                            (value, _) => value.text_lossy().map(std::borrow::Cow::into_owned),
                        };
                        row.insert(column.name.clone(), value);
                    }
                    rows.push(row);
                }
            }
            rows
        };
        let (threads, ranges, marks, calls) =
            (table(INFO_THREAD), table(RANGE), table(MARK), table(MPI_CALL));
        let (rccl_calls, communicators) = (table(RCCL_CALL), table(COMMUNICATOR));
        let (tracks, samples, events) = (table(TRACK), table(SAMPLE), table(EVENT));
        Trace { shard, threads, ranges, marks, calls, rccl_calls, communicators, tracks, samples, events }
    }

    /// Returns the number of ranges with this name.
    pub(crate) fn ranges_named(&self, name: &str) -> usize {
        self.ranges.iter().filter(|row| text(row, "name_id") == name).count()
    }

    /// Returns the loss ledger.
    pub(crate) fn ledger(&self) -> &[Loss] {
        &self.shard.ledger.as_ref().expect("a finished shard has a ledger").losses
    }

    /// Returns the number of rows in the loss ledger, if it is known.
    pub(crate) fn lost(&self) -> u64 {
        self.ledger().iter().filter_map(|loss| loss.rows).sum()
    }
}

pub(crate) fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

pub(crate) fn number(row: &Row, column: &str) -> i64 {
    text(row, column).parse().unwrap()
}
