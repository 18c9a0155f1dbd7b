//! Reads files of `/proc` and `/sys` repeatedly.

use super::parse;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum number of bytes to read from a file.
pub(super) const MAX_FILE_BYTES: usize = 64 << 10;
/// Maximum number of entries to read from a folder.
const MAX_FOLDER_ENTRIES: usize = 4096;
/// Maximum length of a device name.
pub(super) const MAX_NAME_BYTES: usize = 64;
/// The kernel returns up to this many bytes in one read.
const PAGE_BYTES: usize = 4096;

/// A file of which the first bytes are read again each time.
pub(super) struct BoundedFile {
    path: PathBuf,
    /// Stays open between two reads, which makes them cheap.
    file: Option<File>,
    limit: usize,
}

impl BoundedFile {
    /// Opens a file of which one page is read.
    pub(super) fn page(path: &Path) -> Option<BoundedFile> {
        BoundedFile::open(path, PAGE_BYTES)
    }

    /// Opens a file with any number of lines, of which [`MAX_FILE_BYTES`] are read.
    pub(super) fn lines(path: &Path) -> Option<BoundedFile> {
        BoundedFile::open(path, MAX_FILE_BYTES)
    }

    fn open(path: &Path, limit: usize) -> Option<BoundedFile> {
        Some(BoundedFile { path: path.to_owned(), file: Some(File::open(path).ok()?), limit })
    }

    /// Opens the file for each read from now on, because descriptors are few.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Returns the content. Omits a line that the limit truncates.
    pub(super) fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let opened;
        let file = match &self.file {
            Some(file) => file,
            None => {
                opened = File::open(&self.path)?;
                &opened
            }
        };
        let room = self.limit.min(buffer.len());
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..room).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.limit <= PAGE_BYTES {
                break;
            }
        }
        let read = buffer.get(..filled).unwrap_or_default();
        let whole = if filled < room { filled } else { read.iter().rposition(|b| *b == b'\n').unwrap_or(0) };
        Ok(read.get(..whole).unwrap_or_default())
    }
}

impl BoundedFile {
    /// Returns the first word of a small file as a number; `None` if it is none.
    pub(super) fn number(&self) -> Option<u64> {
        let mut buffer = [0; PAGE_BYTES];
        parse::number(&String::from_utf8_lossy(self.read(&mut buffer).ok()?))
    }
}

/// Returns the text of a small file, without the line end; `None` if the file cannot be read.
pub(super) fn text_of(path: &Path) -> Option<String> {
    let mut buffer = [0; PAGE_BYTES];
    let file = BoundedFile::page(path)?;
    Some(String::from_utf8_lossy(file.read(&mut buffer).ok()?).trim().to_owned())
}

/// Returns the names in a folder, shorter ones first, so that 2 is before 10.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_FOLDER_ENTRIES);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.len() <= MAX_NAME_BYTES).collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_cut_at_a_line_and_read_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "0123456789abcde\n".repeat(5000)).unwrap();
        let mut buffer = vec![0; MAX_FILE_BYTES];
        let file = BoundedFile::lines(&path).unwrap();
        assert_eq!(file.read(&mut buffer).unwrap().len(), MAX_FILE_BYTES - 1);
        assert_eq!(BoundedFile::page(&path).unwrap().read(&mut buffer).unwrap().len(), PAGE_BYTES - 1);
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), b"short\n");
        std::fs::write(&path, "x".repeat(70_000)).unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), b"", "no line ends within the limit");
        assert_eq!(text_of(&folder.path().join("none")), None);
    }
}
