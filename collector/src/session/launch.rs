//! Starts the collector process while a thread creates its shard.

use super::control::{ControlChannel, StartMessage, ToCollector};
use super::spawn;
use super::unrecorded::{MAX_CREATE_TIME, PrepareError, wait_for_shard};
use crate::host::machine;
use crate::shard_output::{EarlyShard, ShardCreation};
use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

/// Time within which a collector without a task ends.
const TIME_TO_LEAVE: Duration = Duration::from_secs(1);

/// The collector process and its shard.
pub(super) struct LaunchedCollector {
    pub(super) collector: Child,
    /// The shard, which has its header by now.
    pub(super) early: Option<EarlyShard>,
    /// The shard could not be created, and a rank printed that.
    pub(super) refused: bool,
}

/// Starts the collector by `spawn`, and sends it the configuration with the shard that is created meanwhile.
///
/// # Errors
/// If the process cannot be started, and with `require` also if there is no shard. Then neither is left.
pub(super) fn launch(
    mut start: StartMessage,
    require: bool,
    control: &ControlChannel,
    spawn: impl FnOnce() -> io::Result<Child>,
) -> Result<LaunchedCollector, PrepareError> {
    let place = start.is_recorded().then(|| start.place(machine::clock_domain()));
    let creation = place.and_then(ShardCreation::begin);
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
            // A collector that has died already leaves its shard. It is reported after the command has ended.
            Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok((early, refused)),
            Err(source) => {
                early.iter().for_each(EarlyShard::remove);
                Err(PrepareError::Resource { what: "describe the run", source })
            }
        }
    });
    match described {
        Ok((early, refused)) => Ok(LaunchedCollector { collector, early, refused }),
        Err(error) => {
            let _ = control.send(&ToCollector::Nothing);
            spawn::wait(&mut collector, Instant::now() + TIME_TO_LEAVE);
            Err(error)
        }
    }
}
