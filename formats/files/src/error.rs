//! Reasons to refuse a file that the file system would open.

use crate::owner::user_name;
use std::io;

/// Reason to refuse a file that the file system would open.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileRefused {
    /// A symbolic link that another user created.
    #[error("it is a symbolic link of {}, and links of other users are not followed; name the file that it leads to", user_name(*owner))]
    Link {
        /// User id of the owner of the link.
        owner: u32,
    },
    /// A symbolic link where no links are followed.
    #[error("it is a symbolic link, and no link is followed here; remove it")]
    AnyLink,
    /// A FIFO, a socket, a device or a folder.
    #[error("it is not a regular file")]
    NotRegular,
    /// A second name of a file that belongs neither to this user nor to the owner of the folder.
    #[error("it is a hard link to a file of {}, which the owner of the folder may not be allowed to read; copy the file", user_name(*owner))]
    HardLink {
        /// User id of the owner of the file.
        owner: u32,
    },
    /// A file that this user is about to write, but that another user created.
    #[error("it belongs to {}, not to the user of this process", user_name(*owner))]
    OtherOwner {
        /// User id of the owner of the file.
        owner: u32,
    },
    /// Another process replaced the file, or a folder above it, while it was opened.
    #[error("it was exchanged while it was opened")]
    Exchanged,
    /// A name that contains `/`, or is `.` or `..`.
    #[error("it is not the name of an entry of a folder")]
    NotAName,
}

impl FileRefused {
    /// Returns the refusal inside an error of this crate; `None` for errors of the operating system.
    pub fn in_error(error: &io::Error) -> Option<&FileRefused> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<FileRefused> for io::Error {
    fn from(refused: FileRefused) -> io::Error {
        let kind = match refused {
            FileRefused::NotRegular | FileRefused::NotAName => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, refused)
    }
}
