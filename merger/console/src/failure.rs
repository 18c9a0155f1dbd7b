//! Why a program of the merger stopped, and the exit codes that scripts can rely on.

use crate::VanishedInput;
use rpd_shard::OpenError;
use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// Exit codes of `rpd-merge`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// A fault of rpd-merge.
    Internal = 1,
    /// Wrong command line, or a launcher that does not fit.
    Usage = 2,
    /// `--strict`, and something of the run is missing or damaged.
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

/// Why a merge stopped, in one line that names the file and the next step.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    scope: Scope,
    /// Inputs that became unreadable, if nothing else failed.
    vanished: Vec<VanishedInput>,
}

/// Which merge ranks fail with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// At least this one. Other ranks may wait for it.
    OneRank,
    /// All ranks, and this one prints the message.
    AllRanks,
    /// All ranks, and rank 0 prints the message.
    PrintedByRank0,
}

impl Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::input(error.to_string())
    }
}

impl Failure {
    /// An error with an exit code of its own.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), scope: Scope::OneRank, vanished: Vec::new() }
    }

    /// See [`Exit::Internal`].
    pub fn internal(message: impl fmt::Display) -> Failure {
        Failure::new(Exit::Internal, format!("{message} (this is a fault of rpd-merge: please report it)"))
    }

    /// See [`Exit::Usage`].
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// See [`Exit::Incomplete`].
    pub fn incomplete(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Incomplete, message)
    }

    /// See [`Exit::Input`].
    pub fn input(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Input, message)
    }

    /// See [`Exit::Output`].
    pub fn output(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Output, message)
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
        Failure::output(format!("write {}: {next_step} ({error})", path.display()))
    }

    /// A message between merge ranks that does not decode.
    pub fn message(error: impl fmt::Display) -> Failure {
        Failure::internal(format!("a message between merge ranks is damaged: {error}"))
    }

    /// Inputs that this rank cannot read any more. The merge can restart without them once all ranks know them.
    pub fn inputs_vanished(inputs: Vec<VanishedInput>) -> Failure {
        let names: Vec<String> = inputs.iter().map(|input| input.path.display().to_string()).collect();
        let message = format!("{} cannot be read any more: merge again", names.join(", "));
        Failure { vanished: inputs, ..Failure::new(Exit::Input, message) }
    }

    /// The failure of a rank whose message rank 0 prints.
    pub fn printed_by_rank_0(exit: Exit) -> Failure {
        Failure { scope: Scope::PrintedByRank0, ..Failure::new(exit, "rank 0 has printed the reason") }
    }

    /// The same failure, which every rank has. This one prints it.
    pub fn shared(self) -> Failure {
        Failure { scope: Scope::AllRanks, ..self }
    }

    /// The same failure, with which all ranks end: a merge does not restart, whatever inputs vanished.
    pub fn ending_all_ranks(self) -> Failure {
        Failure { vanished: Vec::new(), ..self.shared() }
    }

    /// The exit code of the program.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether all ranks fail with this one, so that none of them waits for another.
    pub fn is_shared(&self) -> bool {
        self.scope != Scope::OneRank
    }

    /// Whether this rank prints the message.
    pub fn is_printed(&self) -> bool {
        self.scope != Scope::PrintedByRank0
    }

    /// The inputs that became unreadable.
    ///
    /// # Errors
    /// The failure, if it has another cause.
    pub fn into_vanished_inputs(self) -> Result<Vec<VanishedInput>, Failure> {
        if self.vanished.is_empty() { Err(self) } else { Ok(self.vanished) }
    }
}
