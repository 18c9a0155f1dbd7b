//! The command line.

use crate::warn;
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES:
  A program of its own, into ./rpd-out/<time>/rank-00000.rpdshard:
      rpd-collect -- ./simulation input.nml

  One collector per rank:
      mpirun -n 4 rpd-collect -- python3 train.py
      srun -n 16 rpd-collect -o /scratch/traces -- ./simulation

  One collector per node, eight ranks below it:
      srun --ntasks-per-node=1 rpd-collect -- torchrun --nproc-per-node=8 train.py

  Then put the shards of all ranks together:
      rpd-merge

ENVIRONMENT:
  RPD_OUTPUT     output root, like -o
  RPD_RUN_ID     run id, like --run-id
  RPD_RING_BYTES bytes of a ring, like --ring-size
  RPD_DISABLE    1: run the command without tracing it
  RPD_INTERCEPT  path of librpd_intercept.so, if it is not beside rpd-collect or in ../lib
  An empty variable counts as unset. One that makes no sense is named in a warning and left aside.

LIMITS:
  Names of ranges and marks longer than 4096 bytes are cut; what is kept ends in \u{2026}
  Processes that outlive the command are recorded up to its end.
  SIGSTOP to rpd-collect alone cannot reach the command; use SIGTSTP, or signal the process group.

EXIT STATUS:
  That of the command. 126 if it cannot be executed, 127 if it is not found, 2 for a mistake in the
  options. If the command dies by a signal, so does rpd-collect.";

/// Runs a command and records its roctx ranges and MPI calls.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-collect", version, about, after_help = EXAMPLES)]
pub struct Options {
    /// Output root; the shard goes to DIR/<run id>/rank-<rank>.rpdshard [default: rpd-out]
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Name of the run, the same in all ranks [default: the launcher's job id, or the time]
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,

    /// Variable that holds the rank, for launchers that are not known
    #[arg(long, value_name = "NAME")]
    pub rank_env: Option<String>,

    /// Bytes of the ring buffer of each thread
    #[arg(long, value_name = "BYTES")]
    pub ring_size: Option<usize>,

    /// The command to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Options {
    /// The options, with the environment for what was not typed. A variable must never stop a job:
    /// an empty one is none, and one that makes no sense is worth a warning.
    pub fn or_variables(self, variable: impl Fn(&str) -> Option<OsString>) -> Options {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let ring_bytes = || {
            let value = set("RPD_RING_BYTES")?;
            let bytes = value.to_str().and_then(|text| text.trim().parse().ok());
            if bytes.is_none() {
                warn(format_args!(
                    "warning: RPD_RING_BYTES is {value:?}, which is no number of bytes; the default is used"
                ));
            }
            bytes
        };
        Options {
            output: self
                .output
                .filter(|path| !path.as_os_str().is_empty())
                .or_else(|| Some(set("RPD_OUTPUT")?.into())),
            run_id: self
                .run_id
                .filter(|id| !id.is_empty())
                .or_else(|| Some(set("RPD_RUN_ID")?.to_string_lossy().into_owned())),
            ring_size: self.ring_size.or_else(ring_bytes),
            ..self
        }
    }
}

/// The command on a command line that nobody wants to be looked at: `RPD_DISABLE` must help even
/// against mistakes in the options.
pub fn command_alone(arguments: &[OsString]) -> Option<Vec<OsString>> {
    match Options::try_parse_from(arguments) {
        Ok(options) => Some(options.command),
        Err(_) => {
            let dashes = arguments.iter().position(|argument| argument == "--")?;
            arguments.get(dashes + 1..).filter(|command| !command.is_empty()).map(<[OsString]>::to_vec)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(typed: &str) -> Options {
        Options::try_parse_from(typed.split(' ')).unwrap()
    }

    #[test]
    fn what_is_typed_counts_before_variables_and_empty_is_unset() {
        let with = |typed: &str, value: &str| {
            let options = options(typed).or_variables(|_| Some(value.into()));
            (options.output, options.run_id, options.ring_size)
        };
        assert_eq!(with("c -- a", ""), (None, None, None));
        assert_eq!(with("c -- a", "7"), (Some("7".into()), Some("7".to_owned()), Some(7)));
        assert_eq!(with("c -- a", "abc").2, None);
        let typed = with("c -o d --run-id r --ring-size 1 -- a", "7");
        assert_eq!(typed, (Some("d".into()), Some("r".to_owned()), Some(1)));
    }

    #[test]
    fn a_command_is_found_behind_bad_options() {
        let command = |typed: &str| {
            let typed: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let found = command_alone(&typed)?;
            Some(found.join(std::ffi::OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(command("c ./a -- b").as_deref(), Some("./a -- b"));
        assert_eq!(command("c --ring-size abc -- ./a -- b").as_deref(), Some("./a -- b"));
        assert_eq!(command("c --no-such-option -- a -b").as_deref(), Some("a -b"));
        assert_eq!(command("c -o d a -b --no-such-option").as_deref(), Some("a -b --no-such-option"));
        assert_eq!(command("c --no-such-option"), None);
    }
}
