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
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Signals that end a merge: of the user, of the batch system, and of a terminal.
const ENDING: [i32; 3] =
    [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP];
/// Time between two looks for one.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
    /// Where the site is asked for the merge.
    wanted: PathBuf,
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
        let Some(Held { lease, mut status, path, wanted, ended }) = self.held else { return };
        let _ = ended.send(());
        match what {
            Ok((output, None)) => {
                status.end(State::Done, "all that was recorded is in it", Some(&absolute(output)))
            }
            Ok((output, Some(missing))) => status.end(State::Partial, &missing, Some(&absolute(output))),
            Err(failure) => status.end(State::Failed, &failure.to_string(), None),
        }
        tell(&status, &path);
        if status.state != State::Failed {
            // Who asked the site for it has it.
            let _ = fs::remove_file(wanted);
        }
        lease.give_back();
    }
}

/// Where the lease and the status of a merge are.
struct Place {
    lease: PathBuf,
    status: PathBuf,
}

/// The places for them: in the folder of the run; and, where nothing can be written to that, beside the output.
fn places(args: &MergeArgs, home: &Path, is_trace: bool) -> Vec<Place> {
    let in_run = Place { lease: home.join("merge.lease"), status: home.join(status::name(is_trace)) };
    let beside = args.output.as_ref().map(|output| {
        let named = |end: &str| {
            let mut name = output.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        Place { lease: named(".lease"), status: named(".status") }
    });
    std::iter::once(in_run).chain(beside).collect()
}

/// A path that means the same in another folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The lease and the first status of a merge, or why there is nothing to do.
fn take(args: &MergeArgs, found: &Found) -> Result<Result<Held, String>, Failure> {
    let inputs = Inputs::of(found.files.iter().map(|listed| listed.path.as_path()));
    let places = places(args, &found.home, args.trace_order()?.is_some());
    for place in &places {
        let made = status::read(&place.status).and_then(|last| last.into_output(&inputs));
        // Another output than that is another merge.
        let is_wanted = |made: &PathBuf| args.output.as_ref().is_none_or(|wanted| absolute(wanted) == *made);
        if let Some(output) = made.filter(is_wanted) {
            return Ok(Err(format!("{} has all that is there: nothing to merge", output.display())));
        }
    }
    let length = Duration::from_secs(args.lease.into());
    let mut cannot = None;
    for place in places {
        match place.take(&inputs, length, &found.home) {
            Ok(taken) => return Ok(taken),
            Err(error) => cannot = cannot.or(Some(error)),
        }
    }
    let cannot = cannot.map_or_else(String::new, |error| error.to_string());
    let folder = found.home.display();
    Err(Failure::Output(format!("cannot write to {folder}: {cannot}; choose another place with -o")))
}

impl Place {
    fn take(self, inputs: &Inputs, length: Duration, home: &Path) -> io::Result<Result<Held, String>> {
        let lease = match lease::take(&self.lease, length)? {
            Ok(lease) => lease,
            Err(other) => return Ok(Err(format!("{other} merges it: nothing to do"))),
        };
        let status = Status::begin(inputs.clone(), lease.until());
        if let Err(error) = status.write(&self.status) {
            lease.give_back();
            return Err(error);
        }
        let watch = Watch { lease: lease.clone(), status: status.clone(), path: self.status.clone(), length };
        let ended = watch.start();
        Ok(Ok(Held { lease, status, path: self.status, wanted: home.join(WANTED), ended }))
    }
}

/// Ends the process when the lease is over, since somebody else may begin then, and says so when a signal ends it.
struct Watch {
    lease: Lease,
    status: Status,
    path: PathBuf,
    length: Duration,
}

impl Watch {
    /// Watches until something is sent, or the sender is gone.
    fn start(self) -> Sender<()> {
        let (ended, end) = channel();
        let signal = Arc::new(AtomicUsize::new(0));
        for number in ENDING {
            let _ = signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize);
        }
        // Without the thread, the one who called us has to be in time.
        let watch = move || self.watch(&end, &signal);
        let _ = std::thread::Builder::new().name("rpd-lease".to_owned()).spawn(watch);
        ended
    }

    fn watch(mut self, end: &Receiver<()>, signal: &AtomicUsize) {
        let until = Instant::now() + self.length;
        loop {
            let ended = end.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout);
            match signal.load(Ordering::Relaxed) as i32 {
                0 if ended => return,
                0 if Instant::now() < until => {}
                0 => {
                    let given = self.length.as_secs();
                    self.fail(&format!(
                        "it took longer than {given} s, and was ended: give it more with --lease"
                    ));
                    std::process::exit(Exit::Output as i32);
                }
                number => {
                    if !ended {
                        let name = signal_hook::low_level::signal_name(number).unwrap_or("a signal");
                        self.fail(&format!("it was ended by {name}: merge again"));
                        self.lease.give_back();
                    }
                    let _ = signal_hook::low_level::emulate_default_handler(number);
                    return;
                }
            }
        }
    }

    fn fail(&mut self, why: &str) {
        self.status.end(State::Failed, why, None);
        tell(&self.status, &self.path);
        eprintln!("error: {why}");
    }
}

fn tell(status: &Status, path: &Path) {
    if let Err(error) = status.write(path) {
        eprintln!("warning: {}: {error}", path.display());
    }
}
