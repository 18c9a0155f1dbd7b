//! Why a merge stopped, and the exit codes that scripts can rely on.

use crate::input::gone::Gone;
use rpd_rocpd::WriteError;
use rpd_shard::OpenError;
use std::error::Error;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes of `rpd-merge`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// A fault of rpd-merge.
    Internal = 1,
    /// Wrong command line, or a launcher that does not fit.
    Usage = 2,
    /// `--strict` and something of the run is missing or damaged.
    Incomplete = 3,
    /// An input cannot be read, or does not belong to the others.
    Input = 4,
    /// The output cannot be written.
    Output = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a merge stopped. Each message is one line that names the file and the next step.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// See [`Exit::Internal`].
    #[error("{0} (this is a fault of rpd-merge: please report it)")]
    Internal(String),
    /// See [`Exit::Usage`].
    #[error("{0}")]
    Usage(String),
    /// See [`Exit::Incomplete`].
    #[error("{0}")]
    Incomplete(String),
    /// See [`Exit::Input`].
    #[error("{0}")]
    Input(String),
    /// Inputs that cannot be read any more, as one rank finds them.
    #[error("{} cannot be read any more: merge again", gone_names(.0))]
    Gone(Vec<Gone>),
    /// The same, and all ranks know of it: the merge begins anew without them.
    #[error("{} cannot be read any more: merge again", gone_names(.0))]
    Anew(Vec<Gone>),
    /// A shard that could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// See [`Exit::Output`].
    #[error("{0}")]
    Output(String),
    /// A failure that all ranks know of: this rank tells, then all end in good order.
    #[error(transparent)]
    Together(Box<Failure>),
    /// What another rank failed with, in its words.
    #[error("{1}")]
    Told(Exit, String),
    /// The same in the ranks that do not tell.
    #[error("rank 0 has told why")]
    ToldByRank0(Exit),
    /// The database could not be written.
    #[error("{}{}", .0, cause(.0))]
    Write(Box<WriteError>),
}

fn gone_names(all: &[Gone]) -> String {
    let names: Vec<String> = all.iter().map(|gone| gone.path.display().to_string()).collect();
    names.join(", ")
}

/// What the system or SQLite said, where there is something.
fn cause(error: &WriteError) -> String {
    error.source().map_or(String::new(), |source| format!(" ({source})"))
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        Failure::Write(Box::new(error))
    }
}

impl Failure {
    /// The exit code that goes with it.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Internal(_) => Exit::Internal,
            Failure::Usage(_) => Exit::Usage,
            Failure::Incomplete(_) => Exit::Incomplete,
            Failure::Input(_) | Failure::Open(_) | Failure::Gone(_) | Failure::Anew(_) => Exit::Input,
            Failure::Output(_) | Failure::Write(_) => Exit::Output,
            Failure::Together(failure) => failure.exit(),
            Failure::ToldByRank0(exit) | Failure::Told(exit, _) => *exit,
        }
    }

    /// Whether all ranks fail with this one, so that none of them waits for another.
    pub fn is_shared(&self) -> bool {
        matches!(self, Failure::Together(_) | Failure::ToldByRank0(_) | Failure::Anew(_))
    }

    /// A write to the output that the system refused.
    pub fn write(path: &Path, error: &std::io::Error) -> Failure {
        let next_step = match error.kind() {
            ErrorKind::StorageFull => {
                "the disk is full; free some space, or choose an output on another disk"
            }
            ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "check quota and file size limit, or choose another place with -o"
            }
            _ => "check the folder and its file system, or choose another place with -o",
        };
        Failure::Output(format!("write {}: {next_step} ({error})", path.display()))
    }

    /// A message between merge ranks that does not decode.
    pub fn message(error: impl Display) -> Failure {
        Failure::Internal(format!("a message between merge ranks is damaged: {error}"))
    }
}
