//! Original names of the files that were translated.

use crate::input::listing::translate::TRANSLATED_SUFFIX;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Names of translated files, all in one folder, and of the files that they were translated from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OriginalNames {
    /// Common prefix of the names of translated files.
    folder: String,
    names: HashMap<String, String>,
}

impl OriginalNames {
    /// Builds the map from pairs of translated and original name.
    pub(crate) fn new(names: impl Iterator<Item = (String, String)>) -> OriginalNames {
        let names: HashMap<String, String> = names.collect();
        let folder = names.keys().next().and_then(|name| Some(name.rsplit_once('/')?.0));
        OriginalNames { folder: folder.map_or(String::new(), |folder| format!("{folder}/")), names }
    }

    /// Returns whether this is the path of a translated file.
    pub(crate) fn is_translated(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    /// Returns the path of the original of a translated file; any other path unchanged.
    pub(crate) fn original_path(&self, path: &Path) -> PathBuf {
        path.to_str().map_or_else(|| path.to_owned(), |text| self.restore_names(text).into())
    }

    /// Replaces the names of translated files in a text by the original names. Searches for the common prefix only,
    /// because a merge can have ten thousand files and as many texts.
    pub(crate) fn restore_names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(&self.folder).filter(|_| !self.folder.is_empty()) {
            let end = rest[start..].find(TRANSLATED_SUFFIX).map(|at| start + at + TRANSLATED_SUFFIX.len());
            let known = end.and_then(|end| Some((end, self.names.get(&rest[start..end])?)));
            let next = match known {
                Some((end, own)) => {
                    out.push_str(&rest[..start]);
                    out.push_str(own);
                    end
                }
                None => {
                    let next = start + self.folder.len();
                    out.push_str(&rest[..next]);
                    next
                }
            };
            rest = &rest[next..];
        }
        out + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_wherever_they_stand() {
        let pair =
            |(number, own): (u32, &str)| (format!("/out.db.translated/{number}.rpdshard"), own.to_owned());
        let names = OriginalNames::new([(1, "/a.json"), (11, "/b.json")].into_iter().map(pair));
        for (text, wanted) in [
            ("/out.db.translated/1.rpdshard", "/a.json"),
            ("/out.db.translated/11.rpdshard: cut", "/b.json: cut"),
            (
                "both /out.db.translated/1.rpdshard and /out.db.translated/11.rpdshard",
                "both /a.json and /b.json",
            ),
            // No name of any file.
            ("/out.db.translated/2.rpdshard", "/out.db.translated/2.rpdshard"),
            ("/out.db.translated/: /out.db.translated/1.rpdshard", "/out.db.translated/: /a.json"),
            ("/run/1.rpdshard", "/run/1.rpdshard"),
            ("", ""),
        ] {
            assert_eq!(names.restore_names(text), wanted);
        }
        assert!(names.is_translated("/out.db.translated/1.rpdshard") && !names.is_translated("/a.json"));
        let none = OriginalNames::new(std::iter::empty());
        assert_eq!(none.restore_names("/run/1.rpdshard"), "/run/1.rpdshard");
    }
}
