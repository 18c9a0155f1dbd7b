//! A merge at the end of a batch job. If several scripts start it, or one script repeatedly, it runs only once. It
//! ends in time, and a status file in the run's folder records its result.

mod lease;
mod options_hash;
mod status;

pub(crate) use status::{MergeState, MergeStatus};

use crate::input::listing::{InputListing, find};
use crate::job_user::check_owner;
use crate::options::MergeArgs;
use lease::MergeLease;
use options_hash::hash_options;
use rpd_comm::{Comm, broadcast_result};
use rpd_console::{Exit, Failure};
use rpd_files::{HeldFolder, output_place};
use status::{InputSummary, StatusPlace, now};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Signals that end a merge: from the user, the batch system, or a terminal.
const ENDING_SIGNALS: [i32; 3] =
    [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP];
/// Interval of checks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of checks whether another merge has ended.
const MERGE_INTERVAL: Duration = Duration::from_secs(1);

/// File in a run folder that asks the site to merge the run: `rpd-collect --ask-merge`.
const WANTED_FILE: &str = "merge.wanted";

/// A merge that no other process does at the same time. Only rank 0 holds the lease.
pub(crate) struct EpilogMerge {
    held: Option<Held>,
}

struct Held {
    lease: MergeLease,
    status: MergeStatus,
    place: StatusPlace,
    /// Folder of the run, which contains the request for a merge.
    run_folder: Arc<HeldFolder>,
    /// Informs the watch thread that the merge has ended.
    ended: Sender<()>,
}

impl EpilogMerge {
    /// Takes the lease of the run that `args` name; if there is nothing to do, prints why and returns `None`. Every
    /// rank calls this. Writes a status that a merge is running. If the merge takes longer than the lease, the
    /// process ends.
    pub(crate) fn begin(comm: &impl Comm, args: &MergeArgs) -> Result<Option<EpilogMerge>, Failure> {
        let mut held = None;
        let is_begun = broadcast_result(comm, || {
            let found = find(&args.inputs).inspect_err(|failure| nothing_found(args, failure))?;
            match take(args, &found)? {
                Ok(taken) => held = Some(taken),
                Err(_) if args.quiet => {}
                Err(reason) => eprintln!("{reason}"),
            }
            Ok(held.is_some())
        })?;
        Ok(is_begun.then_some(EpilogMerge { held }))
    }

    /// Writes the result of the merge to the status file and releases the lease. `what` has the output, its state and
    /// the reason.
    pub(crate) fn end(mut self, what: Result<(&Path, MergeState, &str), &Failure>) {
        let Some(Held { lease, mut status, place, run_folder, ended }) = self.held.take() else { return };
        let _ = ended.send(());
        match what {
            Ok((output, state, why)) => status.end(state, why, Some(&absolute(output))),
            Err(failure) => status.end(MergeState::Failed, &failure.to_string(), None),
        }
        print_status(&status, &place);
        if status.state != MergeState::Failed {
            // The request to the site is fulfilled.
            let _ = run_folder.remove(WANTED_FILE);
        }
        lease.give_back();
    }
}

impl Drop for EpilogMerge {
    /// Reports a merge that ended without a result, because it panicked.
    fn drop(&mut self) {
        let fault = Failure::internal("the merge came to no end");
        if let Some(held) = self.held.take() {
            EpilogMerge { held: Some(held) }.end(Err(&fault));
        }
    }
}

/// Writes the reason why there is nothing to merge into the folder of a named run, unless something was merged there.
fn nothing_found(args: &MergeArgs, failure: &Failure) {
    let [run_folder] = &args.inputs[..] else { return };
    let Ok(folder) = HeldFolder::open_to_read(run_folder) else { return };
    let is_trace = args.trace_request().is_ok_and(|order| order.is_some());
    let place = StatusPlace { folder: Arc::new(folder), name: status::name(is_trace).to_owned() };
    if !place.folder.is_own() || place.read().is_some_and(|last| last.state != MergeState::Failed) {
        return;
    }
    let mut status = MergeStatus::begin(InputSummary::default(), hash_options(args), now(), args.share);
    status.end(MergeState::Failed, &failure.to_string(), None);
    print_status(&status, &place);
}

/// Location of the status of a merge, and name of the lease in the same folder.
struct Place {
    lease: String,
    status: StatusPlace,
}

/// Returns the possible locations: the folder of the run, and, if that is not writable, the folder of the output.
fn places(args: &MergeArgs, run_folder: &Arc<HeldFolder>, is_trace: bool) -> Vec<Place> {
    let lease = if is_trace { "trace.lease" } else { "merge.lease" };
    let status = StatusPlace { folder: Arc::clone(run_folder), name: status::name(is_trace).to_owned() };
    let in_run = Place { lease: lease.to_owned(), status };
    let beside = args.output.as_ref().and_then(|output| {
        let (folder, name) = output_place(output).ok()?;
        let name = name.to_str()?;
        let status = StatusPlace { folder, name: format!("{name}.status") };
        Some(Place { lease: format!("{name}.lease"), status })
    });
    std::iter::once(in_run).chain(beside).collect()
}

/// Opens the folder of a run to merge. It must belong to this user.
fn open_run_folder(found: &InputListing) -> Result<Arc<HeldFolder>, Failure> {
    check_owner(&found.output_folder)?;
    let opened = HeldFolder::open_to_read(&found.output_folder).map(Arc::new);
    opened.map_err(|error| {
        Failure::input(format!("cannot open the folder {}: {error}", found.output_folder.display()))
    })
}

/// Returns a path that is valid from any working directory.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // After a link, `..` is another folder than the path suggests, so the folder is resolved.
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Rejects folders of other users among the inputs, before their contents are read.
pub(crate) fn check_owners(args: &MergeArgs) -> Result<(), Failure> {
    args.inputs.iter().filter(|input| input.is_dir()).try_for_each(|input| check_owner(input))
}

/// Returns whether the merge that `args` request exists already, with all current inputs.
pub(crate) fn is_merged(args: &MergeArgs) -> bool {
    let Ok(found) = find(&args.inputs) else { return false };
    let is_trace = args.trace_request().is_ok_and(|order| order.is_some());
    let Ok(run_folder) = open_run_folder(&found) else { return false };
    merged(args, &places(args, &run_folder, is_trace), &InputSummary::of_files(&found)).is_some()
}

/// Returns the output of such a merge.
fn merged(args: &MergeArgs, places: &[Place], inputs: &InputSummary) -> Option<PathBuf> {
    let options = hash_options(args);
    // A merge to another output is a different merge.
    let is_wanted = |made: &PathBuf| args.output.as_ref().is_none_or(|wanted| absolute(wanted) == *made);
    let of = |place: &Place| place.status.read()?.into_output(inputs, &options).filter(is_wanted);
    places.iter().find_map(of)
}

/// Takes the lease and writes the first status, or returns why there is nothing to do. Waits for another process that
/// does the same merge.
fn take(args: &MergeArgs, found: &InputListing) -> Result<Result<Held, String>, Failure> {
    let run_folder = open_run_folder(found)?;
    let places = places(args, &run_folder, args.trace_request()?.is_some());
    let length = Duration::from_secs(args.lease.into());
    let until = Instant::now() + length;
    loop {
        let inputs = InputSummary::of_files(found);
        if let Some(output) = merged(args, &places, &inputs) {
            return Ok(Err(format!("{} has all that is there: nothing to merge", output.display())));
        }
        let mut first_error = None;
        let attempt = places.iter().find_map(|place| {
            let attempt = place.take(&inputs, args, &run_folder);
            attempt.map_err(|error| first_error.get_or_insert(error.to_string())).ok()
        });
        let folder = found.output_folder.display();
        let other = match attempt {
            Some(Ok(taken)) => return Ok(Ok(taken)),
            Some(Err(holder)) => holder,
            None => {
                let error = first_error.unwrap_or_default();
                let text = format!("cannot write to {folder}: {error}; choose another place with -o");
                return Err(Failure::output(text));
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::incomplete(format!(
                "{other} still merges {folder} after {} s; this merge did nothing",
                length.as_secs()
            )));
        }
        std::thread::sleep(MERGE_INTERVAL.min(left));
    }
}

impl Place {
    /// Takes the lease and writes the first status, or returns the holder of the lease.
    fn take(
        &self,
        inputs: &InputSummary,
        args: &MergeArgs,
        run_folder: &Arc<HeldFolder>,
    ) -> io::Result<Result<Held, String>> {
        let length = Duration::from_secs(args.lease.into());
        let lease = match lease::take(&self.status.folder, &self.lease, length)? {
            Ok(lease) => lease,
            Err(other) => return Ok(Err(other.to_string())),
        };
        let status = MergeStatus::begin(inputs.clone(), hash_options(args), lease.holder.until, args.share);
        let place = self.status.clone();
        if let Err(error) = status.write(&place) {
            lease.give_back();
            return Err(io::Error::new(error.kind(), format!("{}: {error}", place.path().display())));
        }
        let watch = Watch { lease: lease.clone(), status: status.clone(), place: place.clone(), length };
        let ended = watch.start();
        Ok(Ok(Held { lease, status, place, run_folder: Arc::clone(run_folder), ended }))
    }
}

/// Ends the process when the lease expires, because another merge may start then. Writes the status if a signal ends
/// the process.
struct Watch {
    lease: MergeLease,
    status: MergeStatus,
    place: StatusPlace,
    length: Duration,
}

impl Watch {
    /// Watches until a message arrives or the sender is dropped.
    fn start(self) -> Sender<()> {
        let (ended, end) = channel();
        let signal = Arc::new(AtomicUsize::new(0));
        for number in ENDING_SIGNALS {
            let _ = signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize);
        }
        // Without this thread, the caller must keep to the time of the lease.
        let watch = move || self.watch(&end, &signal);
        let _ = std::thread::Builder::new().name("rpd-lease".to_owned()).spawn(watch);
        ended
    }

    fn watch(mut self, end: &Receiver<()>, signal: &AtomicUsize) {
        let until = Instant::now() + self.length;
        loop {
            let ended = end.recv_timeout(SIGNAL_INTERVAL) != Err(RecvTimeoutError::Timeout);
            match signal.load(Ordering::Relaxed) as i32 {
                0 if ended => return,
                0 if Instant::now() < until => {}
                0 => {
                    let given = self.length.as_secs();
                    self.fail(&format!(
                        "it took longer than {given} s, and was ended; give it more with --lease"
                    ));
                    rpd_output_file::remove_unfinished();
                    std::process::exit(Exit::Incomplete as i32);
                }
                number => {
                    if !ended {
                        let name = signal_hook::low_level::signal_name(number).unwrap_or("a signal");
                        self.fail(&format!("it was ended by {name}; merge again"));
                        rpd_output_file::remove_unfinished();
                        self.lease.give_back();
                    }
                    let _ = signal_hook::low_level::emulate_default_handler(number);
                    return;
                }
            }
        }
    }

    fn fail(&mut self, why: &str) {
        self.status.end(MergeState::Failed, why, None);
        print_status(&self.status, &self.place);
        eprintln!("error: {why}");
    }
}

fn print_status(status: &MergeStatus, place: &StatusPlace) {
    if let Err(error) = status.write(place) {
        eprintln!("warning: {}: {error}", place.path().display());
    }
}
