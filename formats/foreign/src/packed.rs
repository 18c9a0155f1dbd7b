//! Files of profilers in a compression format that the merge does not read.

use crate::head::FileHead;
use crate::origin::is_profiler_name;
use std::path::Path;

/// Extensions of compressed files, with the offset and bytes that identify the format.
const PACKINGS: [(&str, usize, &[u8]); 7] = [
    (".gz", 0, b"\x1f\x8b"),
    (".xz", 0, b"\xfd7zXZ\0"),
    (".zst", 0, b"\x28\xb5\x2f\xfd"),
    (".bz2", 0, b"BZh"),
    (".lz4", 0, b"\x04\x22\x4d\x18"),
    (".zip", 0, ZIP),
    (".tar", 257, b"ustar"),
];
const ZIP: &[u8] = b"PK\x03\x04";
/// Bytes of a local file header of a zip archive, before the file name.
const ZIP_HEAD_BYTES: usize = 30;
/// Extensions of profilers' files inside.
const INNER: [&str; 5] = [".json", ".db", ".rpd", ".pftrace", ".rpdshard"];
/// Extensions of compressed files that the merge reads.
const READ_SUFFIXES: [&str; 2] = [".json.gz", ".pftrace.gz"];

const COMPRESSED: &str =
    "is compressed in a form that rpd-merge does not read; decompress it, and merge the file that is in it";
const NO_PACKING: &str = "has the name of a compressed file, but does not begin like one: it is damaged";

/// Returns why a compressed file cannot be merged. Returns `None` for any other file, and if the names show that it
/// contains no profile.
pub fn why_packed(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    if READ_SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
        return None;
    }
    let (inner, place, magic) = PACKINGS
        .iter()
        .find_map(|(suffix, place, magic)| Some((name.strip_suffix(suffix)?, *place, *magic)))?;
    let is_named = is_inner(inner);
    let Ok(head) = FileHead::read(path) else { return is_named.then_some(COMPRESSED) };
    match head.bytes.get(place..).is_some_and(|bytes| bytes.starts_with(magic)) {
        true => (is_named || magic == ZIP && names_in_zip(&head.bytes).any(|name| is_inner(&name)))
            .then_some(COMPRESSED),
        false => (is_named && (head.is_blank() || is_profiler_name(inner))).then_some(NO_PACKING),
    }
}

fn is_inner(name: &str) -> bool {
    INNER.iter().any(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

/// Returns the names of the files in a zip archive, in lower case, that are in the given first part of the archive.
fn names_in_zip(archive: &[u8]) -> impl Iterator<Item = String> {
    let mut rest = archive;
    std::iter::from_fn(move || {
        let head = rest.strip_prefix(ZIP).and(rest.get(..ZIP_HEAD_BYTES))?;
        let short = |at: usize| Some(usize::from(u16::from_le_bytes([*head.get(at)?, *head.get(at + 1)?])));
        let (name_bytes, extra_bytes) = (short(26)?, short(28)?);
        let packed_bytes = short(18)? | short(20)? << 16;
        let name = rest.get(ZIP_HEAD_BYTES..ZIP_HEAD_BYTES + name_bytes)?;
        let next = (ZIP_HEAD_BYTES + name_bytes + extra_bytes).checked_add(packed_bytes)?;
        rest = rest.get(next..).unwrap_or_default();
        Some(String::from_utf8_lossy(name).to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file in a zip archive with its local header.
    fn zipped(name: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = ZIP.to_vec();
        bytes.extend([0; 14]);
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(name.as_bytes());
        bytes.extend(content);
        bytes
    }

    #[test]
    fn compressed_profiles_are_known_by_name_and_magic_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let why = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            why_packed(&path)
        };
        let mut tar = vec![0; 257];
        tar.extend(b"ustar\0");
        let (zst, bz2, xz): (&[u8], &[u8], &[u8]) = (b"\x28\xb5\x2f\xfd..", b"BZh91", b"\xfd7zXZ\0.");
        let archive = [zipped("README", b"text"), zipped("run/Trace.JSON", b"{}")].concat();
        for (name, content) in [
            ("a.json.zst", zst),
            ("a.JSON.BZ2", bz2),
            ("a.db.xz", xz),
            ("a_results.db.gz", b"\x1f\x8b."),
            ("a.rpd.lz4", b"\x04\x22\x4d\x18"),
            ("a.pftrace.tar", &tar),
            ("a.json.zip", &zipped("x", b"")),
            ("all.zip", &archive),
        ] {
            assert_eq!(why(name, content), Some(COMPRESSED), "{name}");
        }
        for (name, content) in [
            ("a.json.gz", b"\x1f\x8b".as_slice()),
            ("a.json", zst),
            ("runs.tar.xz", xz),
            ("a.txt.zst", zst),
            ("notes.json.xz", b"text"),
            ("photos.zip", &zipped("a.jpg", b"{}.json")),
            ("short.zip", ZIP),
            (".zip", ZIP),
        ] {
            assert_eq!(why(name, content), None, "{name}");
        }
        assert_eq!(why("empty.json.xz", b""), Some(NO_PACKING));
        assert_eq!(why("a_results.db.zst", b"text"), Some(NO_PACKING));
    }
}
