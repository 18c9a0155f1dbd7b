//! A merge at the end of a batch job: called by several scripts, or again, it is done once; it ends in time; and a file
//! in the folder of the run says what became of it.

mod lease;
mod status;

pub use status::{State, Status};

use crate::cli::MergeArgs;
use crate::comm::Comm;
use crate::failure::{Exit, Failure};
use crate::input::find::{Found, find};
use crate::together::from_rank_0;
use lease::Lease;
use serde::{Deserialize, Serialize};
use status::{Inputs, now};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Asks the site for a merge of the run that it lies in: `rpd-collect --ask-merge`.
const WANTED: &str = "merge.wanted";

/// What is to be done.
pub enum Begun {
    /// To merge, and to say how it went.
    Merge(Box<Epilog>),
    /// Nothing, for this reason.
    Nothing(String),
}

/// A merge that nobody else does at the same time. Rank 0 has it; the others only know of it.
pub struct Epilog {
    held: Option<Held>,
}

struct Held {
    lease: Lease,
    status: Status,
    path: PathBuf,
    /// Tells the watch that the merge has ended.
    ended: Sender<()>,
}

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
enum Told {
    Merge,
    Nothing(String),
}

impl Epilog {
    /// Takes the lease of the run that `args` name, unless somebody has it or there is nothing to do. Every rank calls
    /// this. From now on a status says that the merge runs; if it takes longer than the lease, the process ends.
    pub fn begin(comm: &impl Comm, args: &MergeArgs) -> Result<Begun, Failure> {
        let mut held = None;
        let told = from_rank_0(comm, || {
            let found = find(&args.inputs)?;
            Ok(match take(args, &found)? {
                Ok(taken) => {
                    held = Some(taken);
                    Told::Merge
                }
                Err(why) => Told::Nothing(why),
            })
        })?;
        Ok(match told {
            Told::Merge => Begun::Merge(Box::new(Epilog { held })),
            Told::Nothing(why) => Begun::Nothing(why),
        })
    }

    /// Says how it went, and gives the lease back. `what` is the output and, if something of the run is missing, what.
    pub fn end(self, what: Result<(&Path, Option<String>), &Failure>) {
        let Some(Held { lease, mut status, path, ended }) = self.held else { return };
        let _ = ended.send(());
        match what {
            Ok((output, None)) => status.end(State::Done, "all that was recorded is in it", Some(output)),
            Ok((output, Some(missing))) => status.end(State::Partial, &missing, Some(output)),
            Err(failure) => status.end(State::Failed, &failure.to_string(), None),
        }
        tell(&status, &path);
        if status.state != State::Failed {
            // Who asked the site for it has it.
            let _ = fs::remove_file(path.with_file_name(WANTED));
        }
        lease.give_back();
    }
}

/// The lease and the first status of a merge, or why there is nothing to do.
fn take(args: &MergeArgs, found: &Found) -> Result<Result<Held, String>, Failure> {
    let inputs = Inputs::of(found.files.iter().map(|listed| listed.path.as_path()));
    let path = found.home.join(status::name(args.trace_order()?.is_some()));
    if let Some(output) = status::read(&path).and_then(|last| last.into_output(&inputs)) {
        return Ok(Err(format!("{} has all that is there: nothing to merge", output.display())));
    }
    let cannot = |error: std::io::Error| {
        Failure::Output(format!("cannot write to {}: {error}; is it yours?", found.home.display()))
    };
    let length = Duration::from_secs(args.lease.into());
    let lease = match lease::take(&found.home, length).map_err(cannot)? {
        Ok(lease) => lease,
        Err(other) => return Ok(Err(format!("{other} merges it: nothing to do"))),
    };
    let status = Status::begin(inputs, lease.until());
    status.write(&path).map_err(cannot)?;
    let ended = watch(status.clone(), path.clone(), length);
    Ok(Ok(Held { lease, status, path, ended }))
}

/// Ends the process when the lease is over: somebody else may begin then.
fn watch(mut status: Status, path: PathBuf, length: Duration) -> Sender<()> {
    let (ended, end) = channel();
    let watch = move || {
        if end.recv_timeout(length) == Err(RecvTimeoutError::Timeout) {
            let why = format!(
                "it took longer than {} s, and was ended: give it more with --lease",
                length.as_secs()
            );
            status.end(State::Failed, &why, None);
            tell(&status, &path);
            eprintln!("error: {why}");
            std::process::exit(Exit::Output as i32);
        }
    };
    // Without the thread, the one who called us has to be in time.
    let _ = std::thread::Builder::new().name("rpd-lease".to_owned()).spawn(watch);
    ended
}

fn tell(status: &Status, path: &Path) {
    if let Err(error) = status.write(path) {
        eprintln!("warning: {}: {error}", path.display());
    }
}
