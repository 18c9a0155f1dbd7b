//! Prepares a session before its command starts.

use super::announcement::announced;
use super::control::{ControlChannel, ToCollector};
use super::identity::SessionIdentity;
use super::launch::{LaunchedCollector, launch};
use super::profiler_launch::ProfilerLaunch;
use super::spawn::{self, InheritedDescriptors};
use super::start_message::start_of;
use super::unrecorded::{MIN_CGROUP_BYTES, PrepareError, is_first};
use super::variables::variables;
use crate::backend::scratch::ScratchFolder;
use crate::backend::{BackendPlan, plan};
use crate::child::program::ProgramFile;
use crate::child::signals::{self, SignalForwarder};
use crate::command_line::{CollectOptions, WarnSignal};
use crate::drain::RingListener;
use crate::host::cpus::CpuPlacement;
use crate::host::random::random;
use crate::launcher::LauncherEnvironment;
use crate::log::warn;
use crate::python_samples::yama_level;
use rpd_memory_limit::MemoryCgroup;
use rpd_ring::message::TRACER_VARIABLE;
use std::ffi::OsString;
use std::sync::Arc;

/// Prefix of a line of the collector that is not a warning.
pub(super) const NOTE: &str = "note: ";

/// Everything that is prepared before the command starts.
pub(crate) struct CommandSession {
    pub(super) variables: Vec<(String, OsString)>,
    /// A profiler that is to start the command.
    pub(super) profiler_launch: Option<ProfilerLaunch>,
    /// The line that names the backend of each kind of call. It is printed once the profiler has started the
    /// command.
    pub(super) announcement: Option<String>,
    /// Folder on the node for the files of profilers.
    pub(super) scratch: Option<ScratchFolder>,
    pub(super) forwarder: SignalForwarder,
    pub(super) control: Arc<ControlChannel>,
    /// A signal that does not end the command.
    pub(super) warn_signal: Option<WarnSignal>,
    pub(super) launched: LaunchedCollector,
    /// This rank prints where the log is.
    pub(super) prints_for_all: bool,
    /// Number of warnings that were printed and are in the log as well.
    pub(super) printed_warnings: u64,
}

impl CommandSession {
    /// Finds the library, opens the socket, creates the shard and starts the collector. `warnings` are about
    /// the options.
    ///
    /// # Errors
    /// If the command cannot be recorded.
    pub(crate) fn prepare(
        options: &CollectOptions,
        mut placement: CpuPlacement,
        mut warnings: Vec<String>,
    ) -> Result<CommandSession, PrepareError> {
        warnings.extend(placement.line.take_if(|line| !line.starts_with(NOTE)));
        let failed = |what| move |source| PrepareError::Resource { what, source };
        if let Some(cgroup) = MemoryCgroup::tightest().filter(|cgroup| cgroup.limit < MIN_CGROUP_BYTES) {
            return Err(PrepareError::Memory(cgroup.limit >> 10));
        }
        let inherited = InheritedDescriptors::of_this_process();
        let random = random().map_err(failed("read /dev/urandom"))?;
        let (socket, name) =
            RingListener::bind(random).map_err(failed("open a socket for the traced processes"))?;
        let own = SessionIdentity::detect(options, &LauncherEnvironment::of_this_process(), random);
        let prints_for_all = own.prints_for_all();
        let ranks = options.selected_ranks();
        let is_recorded = ranks.contains(own.rank.rank);
        // A process that is ended while it queries profilers must remove their files.
        let forwarder = SignalForwarder::install(true).map_err(failed("catch signals"))?;
        let mut plan = plan(&options.backend_request(), &own.label(), is_recorded);
        let scratch = plan.scratch.take();
        let prepared = match signals::cancelled() {
            Some(signal) => Err(PrepareError::Cancelled(signal)),
            None => variables(options, &plan, &name).map_err(PrepareError::from),
        };
        let started = prepared.and_then(|mut variables| {
            warnings.append(&mut plan.notes);
            let unseen = unseen_command(options, &plan);
            let is_command_unseen = unseen.is_some();
            if let Some((what, next)) = unseen {
                if options.require && is_recorded {
                    let prints_for_all = is_first(own.rank.rank, &ranks);
                    return Err(PrepareError::Unseen { what, next, prints_for_all });
                }
                warnings.push(format!("warning: {what}; {next}"));
            }
            let printed = warnings.iter().filter(|line| prints_for_all && line.starts_with("warning"));
            let mut printed_warnings = printed.inspect(|line| warn(format_args!("{line}"))).count() as u64;
            let mut announcement = None;
            if let Some(line) = announced(options, &plan).filter(|_| is_recorded) {
                announcement = is_first(own.rank.rank, &ranks).then(|| line.clone());
                warnings.push(line);
            }
            if let Some(chosen) =
                options.run_id.as_ref().filter(|chosen| prints_for_all && **chosen != own.run.id)
            {
                let id = &own.run.id;
                warnings.push(format!(
                    "warning: run id {chosen:?} cannot be the name of a folder; the folder is {id}"
                ));
            }
            forwarder.get_ready(plan.ends_early);
            let (control, theirs) = ControlChannel::pair().map_err(failed("open sockets"))?;
            let control = Arc::new(control);
            let profiler_launch = ProfilerLaunch::of(&mut plan, options.recorded_alone(), prints_for_all);
            if let Some(line) = announcement.take_if(|_| profiler_launch.is_none()) {
                warn(format_args!("{line}"));
                printed_warnings += u64::from(line.starts_with("warning"));
            }
            let start = start_of(options, placement, own, plan, (warnings, is_command_unseen));
            let spawn = || spawn::start(&inherited, theirs, socket);
            let launched = launch(start, options.require, &control, spawn)?;
            if options.recorded_alone().python && yama_level() == Some(1) {
                variables.push((TRACER_VARIABLE.to_owned(), launched.collector.id().to_string().into()));
            }
            let channel = Arc::clone(&control);
            let warned = move |signal| drop(channel.send(&ToCollector::Warned { signal }));
            forwarder.warn(options.warn_signal.map(|signal| signal.number), Box::new(warned));
            Ok(CommandSession {
                variables,
                profiler_launch,
                announcement,
                scratch: None,
                forwarder,
                control,
                warn_signal: options.warn_signal,
                launched,
                prints_for_all,
                printed_warnings,
            })
        });
        match started {
            Ok(session) => Ok(CommandSession { scratch, ..session }),
            Err(error) => {
                scratch.iter().for_each(ScratchFolder::remove);
                // A signal that arrived meanwhile would be lost.
                Err(signals::cancelled().map_or(error, PrepareError::Cancelled))
            }
        }
    }
}

/// Returns why the calls of the command cannot be recorded, and what to do, if the library would be preloaded.
fn unseen_command(options: &CollectOptions, plan: &BackendPlan) -> Option<(String, &'static str)> {
    let is_wanted = plan.native && !options.recorded(plan).library.is_empty();
    ProgramFile::find(options.command.first().filter(|_| is_wanted)?).unseen()
}
