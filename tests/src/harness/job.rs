use super::tree;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest run of a job that was given no other limit.
const LIMIT: Duration = Duration::from_secs(60);
/// Most output that is kept of each stream.
const KEPT: u64 = 128 << 20;

/// A command with a hard time limit, in a process group of its own.
#[derive(Clone, Debug)]
pub struct Job {
    program: OsString,
    args: Vec<OsString>,
    env: BTreeMap<OsString, Option<OsString>>,
    folder: Option<PathBuf>,
    limit: Duration,
    /// Run again, once, when this says that the launcher itself failed.
    pub(super) failed_to_start: Option<fn(&JobOutcome) -> bool>,
}

/// What became of a job.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// The command line.
    pub command: String,
    /// How it ended; `None` if it was stopped at its limit.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Job {
    /// A command of this program.
    pub fn new(program: impl AsRef<OsStr>) -> Job {
        Job {
            program: program.as_ref().into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            folder: None,
            limit: LIMIT,
            failed_to_start: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Job {
        self.args.push(arg.as_ref().into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Job {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Job {
        self.env.insert(name.into(), Some(value.as_ref().into()));
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Job {
        self.env.insert(name.into(), None);
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Job {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Job {
        self.limit = limit;
        self
    }

    /// The same command as arguments of another one: `PROGRAM LEADING_ARGS... COMMAND...`.
    #[must_use]
    pub fn wrapped(mut self, program: &str, leading_args: &[&str]) -> Job {
        let inner = std::mem::replace(&mut self.program, program.into());
        let leading_args = leading_args.iter().map(OsString::from).chain([inner]);
        self.args.splice(0..0, leading_args.collect::<Vec<_>>());
        self
    }

    /// The same command with no more than this much address space for each process.
    #[must_use]
    pub fn address_space(self, bytes: u64) -> Job {
        let limit = format!("ulimit -v {} && exec \"$@\"", bytes >> 10);
        self.wrapped("sh", &["-c", &limit, "sh"])
    }

    /// Runs it to its end or limit.
    ///
    /// # Panics
    /// If it cannot be started, or its output cannot be read.
    pub fn run(&self) -> JobOutcome {
        let outcome = self.run_once();
        if self.failed_to_start.is_some_and(|failed| failed(&outcome)) {
            eprintln!("RETRY, the launcher failed to start:\n{outcome}");
            return self.run_once();
        }
        outcome
    }

    /// Starts it without waiting.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&self) -> Child {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()))
    }

    fn run_once(&self) -> JobOutcome {
        let began = Instant::now();
        let mut child = self.start();
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let status = wait(&mut child, began + self.limit);
        let took = began.elapsed();
        let text = |stream: JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&stream.join().unwrap_or_default()).into_owned()
        };
        JobOutcome { command: self.to_string(), status, stdout: text(stdout), stderr: text(stderr), took }
    }
}

/// Waits until the limit, then ends the child and everything below it.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            tree::end(child);
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Reads a stream to its end, and keeps the first part of it.
fn collect(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.by_ref().take(KEPT).read_to_end(&mut kept);
            let _ = io::copy(&mut stream, &mut io::sink());
        }
        kept
    })
}

impl JobOutcome {
    /// The exit code; `None` after a signal or at the limit.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Passes the outcome on if the exit code is 0.
    ///
    /// # Panics
    /// If it is another one.
    #[must_use]
    pub fn success(self) -> JobOutcome {
        assert_eq!(self.code(), Some(0), "expected success of\n{self}");
        self
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.display()))
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobOutcome { command, status, stdout, stderr, took } = self;
        let ended = match status {
            None => "stopped at its time limit".to_owned(),
            Some(status) => match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => format!("exit code {}", status.code().unwrap_or(-1)),
            },
        };
        write!(
            f,
            "$ {command}\n{ended} after {:.1} s\n--- stdout\n{stdout}--- stderr\n{stderr}",
            took.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_code_are_seen() {
        let outcome = Job::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]).run();
        assert_eq!(
            (outcome.code(), outcome.stdout.as_str(), outcome.stderr.as_str()),
            (Some(7), "out\n", "err\n")
        );
    }

    #[test]
    fn a_job_and_what_it_started_end_at_the_limit() {
        let job =
            Job::new("sh").args(["-c", "setsid sleep 600 & sleep 600"]).limit(Duration::from_millis(300));
        let outcome = job.run();
        assert!(outcome.status.is_none() && outcome.took < Duration::from_secs(20), "{outcome}");
    }

    #[test]
    fn address_space_is_bounded() {
        let outcome = Job::new("sh").args(["-c", "ulimit -v"]).address_space(1 << 30).run();
        assert_eq!(outcome.stdout.trim(), "1048576");
    }
}
