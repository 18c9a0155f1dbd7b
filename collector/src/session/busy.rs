//! Keeps the launcher waiting while files of profilers are read.

use super::control::{ControlChannel, ToLauncher};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// So long the launcher waits for files of profilers to be read; what is not read by then goes on without it.
const TIME_TO_HARVEST: Duration = Duration::from_secs(30 * 60);
/// It waits no longer than some seconds for a word.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Tells the launcher every second that it has to wait on, for a time.
pub(super) struct BusySignal(Sender<()>);

impl BusySignal {
    pub(super) fn begin(control: &Arc<ControlChannel>) -> BusySignal {
        let (ended, end) = channel();
        let control = Arc::clone(control);
        let tell = move || {
            let until = Instant::now() + TIME_TO_HARVEST;
            while Instant::now() < until
                && control.send(&ToLauncher::Busy).is_ok()
                && end.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout)
            {}
        };
        // Without the thread, the launcher leaves earlier, and this goes on alone.
        let _ = std::thread::Builder::new().name("rpd-busy".to_owned()).spawn(tell);
        BusySignal(ended)
    }

    pub(super) fn end(self) {
        let _ = self.0.send(());
    }
}
