//! Access rights of an output.

use clap::ValueEnum;
use rpd_files::{output_place, set_output_mode};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Users that may read an output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutputShare {
    /// The user only
    #[default]
    User,
    /// The user and the group
    Group,
}

impl OutputShare {
    /// Makes a file readable for the group. The file was created for the user alone and does not have its final
    /// name yet. If this fails, the file is complete and stays private, with a warning.
    pub fn file(self, made: &Path) {
        self.apply(made, || set_output_mode(made, 0o640));
    }

    /// Makes an open file readable for the group; `path` is its name in messages.
    pub fn open_file(self, made: &File, path: &Path) {
        self.apply(path, || made.set_permissions(Permissions::from_mode(0o640)));
    }

    /// Makes a folder accessible for the group.
    pub fn folder(self, made: &Path) {
        // Keeps the setgid bit, with which new files inherit the group of the folder.
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
