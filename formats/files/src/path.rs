use crate::open::open_input;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the path of a file with a suffix added to its name, such as `-wal`.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns a path as a `file:` URI without parameters. A path may contain any byte.
pub fn file_uri(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

/// Reads at most the first `max_bytes` of an input file.
pub fn read_head(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    open_input(path)?.take(max_bytes).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_marks_of_a_uri_is_still_that_path() {
        assert_eq!(file_uri(Path::new("/a b/50%?x#.rpd")), "file:/a%20b/50%25%3Fx%23.rpd");
    }
}
