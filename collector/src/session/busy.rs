//! Tells the launcher to keep waiting during the harvest.

use super::control::{ControlChannel, ToLauncher};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Maximum time that the launcher waits for the harvest, which continues without it after that.
const TIME_TO_HARVEST: Duration = Duration::from_secs(30 * 60);
/// Interval of the messages. The launcher gives up after some seconds without one.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// Sends a message to the launcher every second, up to a time limit.
pub(super) struct BusySignal(Sender<()>);

impl BusySignal {
    pub(super) fn begin(control: &Arc<ControlChannel>) -> BusySignal {
        let (ended, end) = channel();
        let control = Arc::clone(control);
        let send_busy = move || {
            let until = Instant::now() + TIME_TO_HARVEST;
            while Instant::now() < until
                && control.send(&ToLauncher::Busy).is_ok()
                && end.recv_timeout(SEND_EVERY) == Err(RecvTimeoutError::Timeout)
            {}
        };
        // Without the thread the launcher ends earlier, and the harvest continues alone.
        let _ = std::thread::Builder::new().name("rpd-busy".to_owned()).spawn(send_busy);
        BusySignal(ended)
    }

    pub(super) fn end(self) {
        let _ = self.0.send(());
    }
}
