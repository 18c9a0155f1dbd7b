//! Output files of the merger's programs.
//!
//! An output is written under another name and locked ([`OutputLock`]) meanwhile. What is not finished when a signal ends the
//! program is removed ([`InterruptWatch`]). [`Share`] decides who may read the finished file.

mod interrupt;
mod lock;
mod share;

pub use interrupt::{
    InterruptWatch, Unfinished, keep_on_interrupt, make_removed_on_interrupt, remove_on_interrupt,
    remove_unfinished,
};
pub use lock::OutputLock;
pub use share::Share;
