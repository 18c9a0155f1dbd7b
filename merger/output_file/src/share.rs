//! Who may read an output.

use clap::ValueEnum;
use rpd_files::{output_place, set_output_mode};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who may read an output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutputShare {
    /// The user alone
    #[default]
    User,
    /// The user's group as well
    Group,
}

impl OutputShare {
    /// Lets the group read a file that was made for the user alone, and does not have its name yet. What cannot be
    /// shared stays as it is, with a warning: it is whole.
    pub fn file(self, made: &Path) {
        self.apply(made, || set_output_mode(made, 0o640));
    }

    /// The same for a file that is open; `path` is what messages call it.
    pub fn open_file(self, made: &File, path: &Path) {
        self.apply(path, || made.set_permissions(Permissions::from_mode(0o640)));
    }

    /// The same for a folder.
    pub fn folder(self, made: &Path) {
        // Files go on to belong to the group of the folder, where that is so.
        self.apply(made, || {
            let (above, name) = output_place(made)?;
            let folder = above.open_folder(name)?;
            folder.set_mode(0o750 | folder.mode() & 0o2000)
        });
    }

    fn apply(self, made: &Path, set_mode: impl FnOnce() -> io::Result<()>) {
        if self == OutputShare::Group
            && let Err(error) = set_mode()
        {
            eprintln!("warning: {} is for you alone: {error}", made.display());
        }
    }
}
