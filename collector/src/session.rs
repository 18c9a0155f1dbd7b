//! One run of rpd-collect.

use crate::child::{self, Ending, preload, signals::Forwarder};
use crate::collect::{Collector, Finish, Listener, SourceDefaults};
use crate::command_line::Options;
use crate::launcher::{self, Environment, RunId};
use crate::output::{DEFAULT_MAX_BYTES, Output, ShardPlace};
use crate::{machine, warn};
use rpd_shard::record::RunIdentity;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

/// After the command is dead, the launcher waits for nobody but us.
const TIME_TO_FINISH: Duration = Duration::from_secs(5);

/// Why a command cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The library is missing.
    #[error("{0}")]
    Preload(#[from] preload::PreloadError),
    /// The socket, a thread or a descriptor could not be had.
    #[error("failed to {what}: {source}{}", crate::next_step(source))]
    Resource {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Everything that is ready before the command starts.
pub struct Session {
    variables: Vec<(&'static str, OsString)>,
    forwarder: Forwarder,
    collector: Collector,
    finished: Receiver<()>,
}

impl Session {
    /// Gets ready: finds the library, opens the socket, starts the threads. No file is made yet.
    pub fn prepare(options: &Options) -> Result<Session, PrepareError> {
        let failed = |what| move |source| PrepareError::Resource { what, source };
        let executable = std::env::current_exe().map_err(failed("find the path of rpd-collect"))?;
        let library = preload::find_library(std::env::var_os("RPD_INTERCEPT").as_deref(), &executable)?;
        let random = random().map_err(failed("read /dev/urandom"))?;
        let listener = Listener::bind(random).map_err(failed("open a socket for the traced processes"))?;

        let environment = Environment::of_this_process();
        let own = launcher::detect_rank(&environment, options.rank_env.as_deref());
        let run = run_id(options, &environment, random);
        if let Some(chosen) = &options.run_id
            && *chosen != run.id
            && own.rank.is_none_or(|rank| rank == 0)
        {
            warn(format_args!("run id {chosen:?} is no name for a folder; the folder is {}", run.id));
        }
        let run = RunIdentity {
            run_id: run.id,
            run_id_from: run.from,
            rank: own.rank,
            size: own.size,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let place = ShardPlace {
            root: absolute(options.output.as_deref().unwrap_or(Path::new("rpd-out"))),
            run,
            domain: machine::clock_domain(),
            max_bytes: DEFAULT_MAX_BYTES,
            share_group: false,
        };
        let defaults = SourceDefaults {
            rank: own,
            rank_is_named: options.rank_env.is_some(),
            node: machine::node(),
            domain: place.domain.clone(),
        };

        let mut variables = vec![
            ("RPD_SOCKET", OsString::from(listener.name())),
            ("LD_PRELOAD", preload::with_library(std::env::var_os("LD_PRELOAD").as_deref(), &library)),
        ];
        if let Some(bytes) = options.ring_size {
            variables.push(("RPD_RING_BYTES", rpd_ring::layout::ring_bytes(bytes).to_string().into()));
        }

        let (output, finished) = Output::start(place).map_err(failed("start the writing thread"))?;
        let collector =
            Collector::start(listener, defaults, output).map_err(failed("start the collecting thread"))?;
        let forwarder = Forwarder::install().map_err(failed("catch signals"))?;
        Ok(Session { variables, forwarder, collector, finished })
    }

    /// Runs the command to its end, finishes the shard, and says how to end.
    pub fn run(self, command: &[OsString]) -> Ending {
        let mut child = match child::start(command, &self.variables) {
            Ok(child) => child,
            Err(code) => return Ending::Code(code),
        };
        let pid = child.id() as i32;
        self.forwarder.set_target(pid);
        let ending = match child.wait() {
            Ok(status) => Ending::from(status),
            Err(error) => {
                warn(format_args!("failed to wait for the command: {error}"));
                Ending::Code(1)
            }
        };
        self.collector.finish(Finish { pid, exit: ending.exit() });
        if self.finished.recv_timeout(TIME_TO_FINISH) == Err(RecvTimeoutError::Timeout) {
            warn(format_args!(
                "warning: the shard was not finished within {} s after the end of the command; what is \
                 in it so far can be read",
                TIME_TO_FINISH.as_secs()
            ));
        }
        ending
    }
}

fn run_id(options: &Options, environment: &Environment, random: u128) -> RunId {
    let chosen = options.run_id.as_deref();
    launcher::detect_run_id(chosen, environment, launcher::hydra_job)
        .unwrap_or_else(|| launcher::lone_run_id(SystemTime::now(), std::process::id(), random as u32))
}

/// The file is made later, from a thread: by then the path must not depend on anything.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn random() -> std::io::Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}
