//! Failures of the merger's programs, and the exit codes on which scripts can rely.

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
    /// Wrong command line, or an unsuitable launcher.
    Usage = 2,
    /// With `--strict`, a part of the run is missing or damaged.
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

/// The merge ranks that fail with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// At least this rank. Other ranks may be waiting for it.
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
    /// Creates a failure with this exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), scope: Scope::OneRank, vanished: Vec::new() }
    }

    /// Creates a failure with [`Exit::Internal`].
    pub fn internal(message: impl fmt::Display) -> Failure {
        Failure::new(Exit::Internal, format!("{message} (this is a fault of rpd-merge: please report it)"))
    }

    /// Creates a failure with [`Exit::Usage`].
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Creates a failure with [`Exit::Incomplete`].
    pub fn incomplete(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Incomplete, message)
    }

    /// Creates a failure with [`Exit::Input`].
    pub fn input(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Input, message)
    }

    /// Creates a failure with [`Exit::Output`].
    pub fn output(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Output, message)
    }

    /// Creates the failure for a write to the output that the operating system rejected.
    pub fn write(path: &Path, error: &std::io::Error) -> Failure {
        let next_step = match error.kind() {
            ErrorKind::StorageFull => "free some space, or choose an output on another disk",
            ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "check quota and file size limit, or choose another place with -o"
            }
            _ => "check the folder and its file system, or choose another place with -o",
        };
        Failure::output(format!("cannot write {} ({error}); {next_step}", path.display()))
    }

    /// Creates the failure for a message between merge ranks that cannot be decoded.
    pub fn damaged_message(error: impl fmt::Display) -> Failure {
        Failure::internal(format!("a message between merge ranks is damaged: {error}"))
    }

    /// Creates the failure for inputs that this rank cannot read any more. The merge can restart without them
    /// after all ranks have exchanged them.
    pub fn inputs_vanished(inputs: Vec<VanishedInput>) -> Failure {
        let names: Vec<String> = inputs.iter().map(|input| input.path.display().to_string()).collect();
        let message = format!("{} cannot be read any more; merge again", names.join(", "));
        Failure { vanished: inputs, ..Failure::new(Exit::Input, message) }
    }

    /// Creates the failure of a rank if rank 0 prints its message.
    pub fn printed_by_rank_0(exit: Exit) -> Failure {
        Failure { scope: Scope::PrintedByRank0, ..Failure::new(exit, "rank 0 has printed the reason") }
    }

    /// Marks the failure as one of every rank. This rank prints it.
    pub fn shared(self) -> Failure {
        Failure { scope: Scope::AllRanks, ..self }
    }

    /// Marks the failure as one that ends all ranks. The merge does not restart, even if inputs vanished.
    pub fn ending_all_ranks(self) -> Failure {
        Failure { vanished: Vec::new(), ..self.shared() }
    }

    /// Returns the exit code of the program.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns whether all ranks fail with this failure, so that none of them waits for another.
    pub fn is_shared(&self) -> bool {
        self.scope != Scope::OneRank
    }

    /// Returns whether this rank prints the message.
    pub fn is_printed_here(&self) -> bool {
        self.scope != Scope::PrintedByRank0
    }

    /// Returns the inputs that became unreadable.
    ///
    /// # Errors
    /// The failure, if it has another cause.
    pub fn into_vanished_inputs(self) -> Result<Vec<VanishedInput>, Failure> {
        if self.vanished.is_empty() { Err(self) } else { Ok(self.vanished) }
    }
}
