//! The rules that `layers.toml` states.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The order of crates and rooms, the limits, and the exceptions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRules {
    /// Crates, lowest first. A crate may import only crates before it.
    pub(crate) crates: Vec<String>,
    /// Rooms by crate name, lowest first. A room may import only rooms before it.
    pub(crate) rooms: BTreeMap<String, Vec<String>>,
    /// Crates with a root that is limited to [`LayerLimits::public_items_per_crate_root`].
    pub(crate) crates_with_small_root: Vec<String>,
    /// The limits.
    pub(crate) limits: LayerLimits,
    /// Exceptions to the rules.
    #[serde(default)]
    pub(crate) exceptions: Vec<LayerException>,
}

/// Limits of the workspace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerLimits {
    /// Maximum number of names of the project that one file imports, without tests.
    pub(crate) imported_names_per_file: usize,
    /// Maximum number of public items at the root of a crate. A `pub mod` counts its items.
    pub(crate) public_items_per_crate_root: usize,
    /// Maximum number of public types of the workspace that share a name.
    pub(crate) max_types_per_name: usize,
    /// Names of constants that do not state the limited quantity.
    pub(crate) forbidden_constant_names: Vec<String>,
}

/// Permission for one file to break one rule.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerException {
    /// The file, relative to the root of the repository, or the name of a type.
    pub file: String,
    /// The rule, as [`crate::LayerViolation::rule`] names it.
    pub rule: String,
    /// The room, crate or name that the rule would forbid, or the largest permitted number.
    pub found: String,
    /// The reason for the permission.
    pub reason: String,
}

impl LayerRules {
    /// Reads `layers.toml`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or contains an unknown key.
    pub fn read(path: &Path) -> Result<LayerRules, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Adds an exception.
    pub fn permit(&mut self, exception: LayerException) {
        self.exceptions.push(exception);
    }
}
