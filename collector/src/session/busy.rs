//! Makes the parent process keep waiting during the harvest.

use super::control::{ControlChannel, ToParent};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Maximum time that the parent process waits for the harvest, which continues without it after that.
const TIME_TO_HARVEST: Duration = Duration::from_secs(30 * 60);
/// Interval of the messages. The parent process gives up after some seconds without one.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// Sends a message to the parent process every second, up to a time limit.
pub(super) struct BusySignal(Sender<()>);

impl BusySignal {
    pub(super) fn begin(control: &Arc<ControlChannel>) -> BusySignal {
        let (ended, end) = channel();
        let control = Arc::clone(control);
        let send_busy = move || {
            let until = Instant::now() + TIME_TO_HARVEST;
            while Instant::now() < until
                && control.send(&ToParent::Busy).is_ok()
                && end.recv_timeout(SEND_EVERY) == Err(RecvTimeoutError::Timeout)
            {}
        };
        // Without the thread the parent process ends earlier, and the harvest continues alone.
        let _ = std::thread::Builder::new().name("rpd-busy".to_owned()).spawn(send_busy);
        BusySignal(ended)
    }

    pub(super) fn end(self) {
        let _ = self.0.send(());
    }
}
