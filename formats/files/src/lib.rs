//! Opens files below folders to which other users may have write access.
//!
//! A user names a folder; another user may have planted its entries. [`HeldFolder`] holds the folder by its
//! descriptor and accesses entries relative to it. Renaming or replacing the folder between two calls therefore has
//! no effect. [`open_input`] and [`open_output`] do the same for paths: [`anchor`] holds a folder for the life of
//! the process, and paths below it are resolved from its descriptor.
//!
//! Invariant: symbolic links of other users are never followed, and only regular files are opened, so that no call
//! waits for a writer. docs/SECURITY.md describes which attacks this prevents.

mod anchor;
mod by_path;
mod error;
mod folder;
mod named;
mod open;
mod output;
mod owner;
mod path;

pub use anchor::{AnchorUse, anchor};
pub use by_path::{is_safe_folder, open_by_path};
pub use error::FileRefused;
pub use folder::{EntryKind, EntryStat, FileAccess, HeldFolder};
pub use open::{entry_stat, open_input, open_input_folder, open_output};
pub use output::{
    create_output, create_output_folder, open_or_create_output, output_place, remove_output,
    remove_output_folder, rename_output, rename_output_to_new, set_output_mode,
};
pub use owner::{effective_uid, user_name};
pub use path::{beside, file_uri, read_head};

#[cfg(test)]
mod tests;
