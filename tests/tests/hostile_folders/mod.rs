//! Two users and root attack each other's run folders: nothing outside a folder is created, changed, read into an
//! output or waited for, and the message says why.
//!
//! The users have no accounts: root starts their programs with `setpriv`. Without root these tests are skipped.

mod collecting;
mod epilogs;
mod exchanges;
mod inputs;
mod planted_names;
mod two_users;
