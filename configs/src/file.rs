//! Reads one settings file: its tables, with the line of each key.

use std::io;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a file.
pub(crate) const MAX_BYTES: u64 = 1 << 20;
/// Names of the tables in a file.
const TABLES: [&str; 2] = ["collect", "merge"];
/// The key that lists the keys which only the site file may set.
const LOCKED: &str = "locked";

/// Error in a settings file, with its place.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the file {name} ({source}); check its path and permissions")]
    Unreadable {
        /// Name of the file.
        name: String,
        /// Cause.
        source: io::Error,
    },
    /// A name that is not a preset.
    #[error(
        "there is no preset {0:?}{near}; choose default, pytorch-training, inference-server, hpc-mpi, low-overhead or \
         full, or name a file with a / or .toml", near = nearest(.0, crate::PRESETS.iter().map(|(name, _)| *name))
    )]
    NoPreset(String),
    /// An entry that cannot be used.
    #[error("{name}:{line}: {what}")]
    At {
        /// Name of the file.
        name: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// A value in the form of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TypedValue {
    /// Whether an option without a value is given.
    Switch(bool),
    /// The values of an option.
    Values(Vec<String>),
}

/// A key with its value and line.
#[derive(Clone, Debug)]
pub(crate) struct FileEntry {
    pub(crate) key: String,
    pub(crate) value: TypedValue,
    pub(crate) line: usize,
}

/// The table of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTable {
    /// Name of the file.
    pub(crate) name: String,
    pub(crate) entries: Vec<FileEntry>,
    /// Keys that only this file may set, and the line that locks them.
    pub(crate) locked: Vec<(String, usize)>,
}

impl FileTable {
    /// Reads the table of a program; a missing table is empty. All other tables must belong to other programs.
    pub(crate) fn read(name: &str, text: &str, program: &str) -> Result<FileTable, FileError> {
        let at = |span: Range<usize>, what: String| FileError::At {
            name: name.to_owned(),
            line: line_of(text, span.start),
            what,
        };
        let document = DeTable::parse(text)
            .map_err(|error| at(error.span().unwrap_or_default(), error.message().to_owned()))?;
        let mut table = FileTable { name: name.to_owned(), ..FileTable::default() };
        for (key, value) in document.get_ref() {
            let (word, span) = (key.get_ref().as_ref(), key.span());
            if !TABLES.contains(&word) {
                let near = nearest(word, TABLES.into_iter());
                let what =
                    format!("there is no table {word:?}{near}; write options into [collect] or [merge]");
                return Err(at(span, what));
            }
            let DeValue::Table(entries) = value.get_ref() else {
                return Err(at(
                    span,
                    format!("{word} is the name of a table; write [{word}], and its options below it"),
                ));
            };
            if word == program {
                table.take(entries, &at, |place| line_of(text, place))?;
            }
        }
        table.entries.sort_by_key(|entry| entry.line);
        Ok(table)
    }

    fn take(
        &mut self,
        entries: &DeTable<'_>,
        at: &impl Fn(Range<usize>, String) -> FileError,
        line: impl Fn(usize) -> usize,
    ) -> Result<(), FileError> {
        for (key, value) in entries {
            let word = key.get_ref().to_string();
            let line = line(key.span().start);
            let typed = typed(value).map_err(|what| at(value.span(), format!("{word}: {what}")))?;
            match (word == LOCKED, typed) {
                (true, TypedValue::Values(keys)) => {
                    self.locked.extend(keys.into_iter().map(|key| (key, line)))
                }
                (true, TypedValue::Switch(_)) => {
                    return Err(at(value.span(), format!("{LOCKED} is a list of keys: [\"probes\"]")));
                }
                (false, value) => self.entries.push(FileEntry { key: word, value, line }),
            }
        }
        Ok(())
    }
}

fn typed(value: &Spanned<DeValue<'_>>) -> Result<TypedValue, &'static str> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err("write a text, a number, true or false, or a list of texts"),
    };
    match value.get_ref() {
        DeValue::Boolean(given) => Ok(TypedValue::Switch(*given)),
        DeValue::Array(values) => {
            let values = values.iter().map(|value| one(value.get_ref())).collect::<Result<_, _>>()?;
            Ok(TypedValue::Values(values))
        }
        value => Ok(TypedValue::Values(vec![one(value)?])),
    }
}

/// Returns a line number, from 1.
fn line_of(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns `, did you mean "max-size"` if a known key is similar.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let close = known.map(|name| (strsim::damerau_levenshtein(word, name), name)).min();
    // A word that differs in half of its letters is another word.
    match close.filter(|(distance, name)| *distance * 3 <= name.len().max(3)) {
        Some((_, name)) => format!(", did you mean {name:?}"),
        None => String::new(),
    }
}
