//! Starting the collector process, while its shard is created.

use super::control::{ControlChannel, StartMessage, ToCollector};
use super::spawn;
use super::unrecorded::{MAX_CREATE_TIME, PrepareError, wait_for_shard};
use crate::host::machine;
use crate::shard_output::{EarlyShard, ShardCreation};
use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

/// A collector that gets nothing to do ends within this time.
const TIME_TO_LEAVE: Duration = Duration::from_secs(1);

/// The collector process, and what is known of its shard.
pub(super) struct LaunchedCommand {
    pub(super) collector: Child,
    /// Has its header by now.
    pub(super) early: Option<EarlyShard>,
    /// There is no place for a shard, and that was said.
    pub(super) refused: bool,
}

/// Starts the collector by `spawn`, and sends it what to do with the shard that is created meanwhile.
///
/// # Errors
/// If the process cannot be started, and with `require` also if there is no shard. Then neither is left.
pub(super) fn launch(
    mut start: StartMessage,
    require: bool,
    control: &ControlChannel,
    spawn: impl FnOnce() -> io::Result<Child>,
) -> Result<LaunchedCommand, PrepareError> {
    let is_recorded = start.ranks.contains(start.run.rank);
    let creation = is_recorded.then(|| ShardCreation::begin(start.place(machine::clock_domain()))).flatten();
    let mut collector = match spawn() {
        Ok(collector) => collector,
        Err(source) => {
            if let Some(Ok(Some((_, early)))) = creation.map(|creation| creation.wait(MAX_CREATE_TIME)) {
                early.remove();
            }
            return Err(PrepareError::Resource { what: "start the collector process", source });
        }
    };
    let described = wait_for_shard(creation, &mut start, require).and_then(|file| {
        let (early, refused) = (start.early.clone(), start.refused);
        let sent = control.send_with(&ToCollector::Start(Box::new(start)), file.as_ref());
        match sent {
            Ok(()) => Ok((early, refused)),
            // A collector that is dead already leaves its shard, and is reported when the command has ended.
            Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok((early, refused)),
            Err(source) => {
                early.iter().for_each(EarlyShard::remove);
                Err(PrepareError::Resource { what: "describe the run", source })
            }
        }
    });
    match described {
        Ok((early, refused)) => Ok(LaunchedCommand { collector, early, refused }),
        Err(error) => {
            let _ = control.send(&ToCollector::Nothing);
            spawn::wait(&mut collector, Instant::now() + TIME_TO_LEAVE);
            Err(error)
        }
    }
}
