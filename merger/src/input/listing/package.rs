//! Packages of AMD's tools: `index.yaml` lists databases that belong together, alone or in a folder `NAME.rpdb`.
//!
//! AMD's tools write a list of names below `rocprofiler-sdk: rocpd: files:`, or one name. Names without a leading slash
//! start from the folder of the index.

use crate::input::listing::find::{exists, hold, is_folder};
use crate::input::path_text;
use rpd_console::Failure;
use rpd_files::{effective_uid, entry_stat, open_input};
use serde::Deserialize;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_saphyr::{Error, Options, Spanned, budget, options};
use std::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Name of the index in a folder.
pub(crate) const INDEX_NAME: &str = "index.yaml";
/// Extension of a package's folder.
const PACKAGE_EXTENSION: &str = "rpdb";
/// Extensions by which AMD's tools recognise an index.
const INDEX_EXTENSIONS: [&str; 2] = ["yaml", "yml"];
/// Maximum size of an index, bytes.
const MAX_INDEX_BYTES: u64 = 1 << 20;
/// Maximum number of databases in an index.
const MAX_LISTED: usize = 10_000;
/// Maximum number of characters that an error quotes from an index.
const MAX_QUOTED: usize = 200;
const NO_LIST: &str =
    "has no list of databases (rocprofiler-sdk: rocpd: files:), so that it is not the index of a package";

/// An index, as far as it is read.
#[derive(Deserialize)]
struct PackageIndex {
    #[serde(rename = "rocprofiler-sdk")]
    sdk: Option<SdkSection>,
}

#[derive(Deserialize)]
struct SdkSection {
    rocpd: Option<RocpdSection>,
}

#[derive(Deserialize)]
struct RocpdSection {
    files: Option<ListedNames>,
}

/// Names of databases with their lines.
struct ListedNames(Vec<(u64, String)>);

impl<'de> Deserialize<'de> for ListedNames {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ListedNames, D::Error> {
        struct NamesVisitor;
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = ListedNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a database, or a list of names")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<ListedNames, E> {
                Ok(ListedNames(vec![(0, name.to_owned())]))
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<ListedNames, E> {
                Ok(ListedNames(Vec::new()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ListedNames, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element::<Spanned<String>>()? {
                    if names.len() == MAX_LISTED {
                        return Err(A::Error::custom(format_args!("more than {MAX_LISTED} databases")));
                    }
                    names.push((name.referenced.line(), name.value));
                }
                Ok(ListedNames(names))
            }
        }
        deserializer.deserialize_any(NamesVisitor)
    }
}

/// Returns the index of a package if an input is one: a file named like an index, or a folder `NAME.rpdb` with an index.
pub(super) fn index_of(input: &Path, is_folder: bool) -> Option<PathBuf> {
    let extension = input.extension()?.to_str()?.to_ascii_lowercase();
    match is_folder {
        true => {
            let index = input.join(INDEX_NAME);
            (extension == PACKAGE_EXTENSION && exists(&index)).then_some(index)
        }
        false => INDEX_EXTENSIONS.contains(&&*extension).then(|| input.to_owned()),
    }
}

/// Returns the databases that an index lists, each with the place at which it does.
///
/// # Errors
/// [`Failure::input`], if the index is not one, is too large, or names a file that it may not name.
pub(super) fn listed_files(index: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    let folder = match index.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    hold(folder)?;
    let names = names(index)?;
    let stat = entry_stat(index).map_err(|error| unreadable(index, &error))?;
    let is_trusted = [0, effective_uid()].contains(&stat.owner);
    let mut files = Vec::with_capacity(names.len());
    for (line, name) in names {
        let place = if line > 0 { format!("{}:{line}", path_text(index)) } else { path_text(index) };
        let refuse = |problem: &str| Failure::input(format!("{place}: {} {problem}", quoted(&name)));
        if name.is_empty() {
            return Err(refuse("is no name of a database; name the databases themselves"));
        }
        let file = folder.join(&name);
        let is_inside =
            !file.components().skip(folder.components().count()).any(|part| part == Component::ParentDir);
        if !(is_trusted || is_inside && file.starts_with(folder)) {
            return Err(refuse("lies outside of the package of another user; name the database itself"));
        }
        if name.contains(['*', '?', '[']) && !exists(&file) {
            return Err(refuse("is a pattern, which is not expanded; name the databases themselves"));
        }
        if is_folder(&file) {
            return Err(refuse("is a folder; an index lists databases"));
        }
        files.push((file, place));
    }
    Ok(files)
}

/// Reads the names in an index.
fn names(index: &Path) -> Result<Vec<(u64, String)>, Failure> {
    let refuse = |problem: &str| Failure::input(format!("{} {problem}", path_text(index)));
    let mut bytes = Vec::new();
    let file = open_input(index).map_err(|error| unreadable(index, &error))?;
    let read = file.take(MAX_INDEX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(index, &error))?;
    if bytes.len() as u64 > MAX_INDEX_BYTES {
        return Err(refuse(
            "is larger than 1 MiB, and thus not the index of a package; name the databases themselves",
        ));
    }
    let parsed: Option<PackageIndex> =
        serde_saphyr::from_slice_with_options(&bytes, limits()).map_err(|error| {
            let line = error.location().map_or(String::new(), |location| format!(":{}", location.line()));
            let path = path_text(index);
            let why = match error.without_snippet() {
                Error::Budget { .. } => {
                    "it has aliases, anchors, several documents, or more parts than an index needs".to_owned()
                }
                error => quoted(&error.to_string()),
            };
            Failure::input(format!(
                "{path}{line}: is not the index of a package: {why}; name the databases themselves"
            ))
        })?;
    let listed = parsed.and_then(|index| index.sdk?.rocpd?.files).map(|names| names.0);
    match listed {
        Some(names) if names.is_empty() => Err(refuse("lists no databases")),
        Some(names) => Ok(names),
        None => Err(refuse(NO_LIST)),
    }
}

/// Returns the limits of the parser. An index of AMD's tools has neither aliases nor deep structures.
fn limits() -> Options {
    options! {
        budget: budget! { max_aliases: 0, max_anchors: 0, max_depth: 16, max_documents: 1, max_nodes: 2 * MAX_LISTED },
        with_snippet: false,
    }
}

fn unreadable(index: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("cannot read {}: {error}; check its permissions", path_text(index)))
}

/// Returns the first characters of a text from an index, without control characters.
fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `read` with an index in a folder that has the database `a.db`.
    fn read<T>(yaml: &str, read: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, String> {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join(INDEX_NAME);
        std::fs::write(&index, yaml).unwrap();
        std::fs::write(folder.path().join("a.db"), "").unwrap();
        read(&index).map_err(|failure| failure.to_string().replace(&path_text(&index), "INDEX"))
    }

    #[test]
    fn an_index_lists_files_as_amd_writes_it() {
        let many = "rocprofiler-sdk:\n  rocpd:\n    files:\n    - a.db\n    - ../b.db\n    - /c/d.db\n    path: .\n    rocpd_package_version: '1.0'\n";
        let listed =
            [(4, "a.db"), (5, "../b.db"), (6, "/c/d.db")].map(|(line, name)| (line, name.to_owned()));
        assert_eq!(read(many, names), Ok(listed.to_vec()));
        let one = "rocprofiler-sdk: {rocpd: {files: a.db}}";
        assert_eq!(read(one, names), Ok(vec![(0, "a.db".to_owned())]));
        let (files, expected) =
            read(one, |index| Ok((listed_files(index)?, (index.with_file_name("a.db"), path_text(index)))))
                .unwrap();
        assert_eq!(files, [expected]);
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        let begin = "rocprofiler-sdk:\n  rocpd:\n    files:\n";
        for (yaml, words) in [
            ("", "has no list of databases"),
            ("a: 1", "has no list of databases"),
            ("rocprofiler-sdk: {rocpd: {files: ''}}", "is no name"),
            ("rocprofiler-sdk: {rocpd: {files: []}}", "lists no databases"),
            (&format!("{begin}    - *a\n"), "INDEX:4"),
            (&format!("{begin}    - [x]\n"), "INDEX:4"),
            (&format!("{begin}    - a.db\n    - '*.db'\n"), "INDEX:5: *.db is a pattern"),
            ("a: &a [x]\nrocprofiler-sdk: {rocpd: {files: *a}}", "is not the index"),
            (&format!("{begin}    - {}\n", "[".repeat(100)), "is not the index"),
            (&format!("{begin}{}", "    - a\n".repeat(MAX_LISTED + 1)), "more than 10000 databases"),
            (&" ".repeat(MAX_INDEX_BYTES as usize + 1), "larger than 1 MiB"),
        ] {
            let error = read(yaml, listed_files).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
