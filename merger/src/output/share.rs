//! Who may read an output.

use clap::ValueEnum;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who may read an output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Share {
    /// The user alone
    #[default]
    User,
    /// The user's group as well
    Group,
}

impl Share {
    /// Lets the group read a file that was made for the user alone, and does not have its name yet. What cannot be
    /// shared stays as it is, with a warning: it is whole.
    pub fn file(self, made: &Path) {
        self.apply(made, 0o640);
    }

    /// The same for a folder.
    pub fn folder(self, made: &Path) {
        // Files go on to belong to the group of the folder, where that is so.
        let inherited = fs::metadata(made).map_or(0, |found| found.permissions().mode() & 0o2000);
        self.apply(made, 0o750 | inherited);
    }

    fn apply(self, made: &Path, mode: u32) {
        if self == Share::Group
            && let Err(error) = fs::set_permissions(made, Permissions::from_mode(mode))
        {
            eprintln!("warning: {} is for you alone: {error}", made.display());
        }
    }
}
