//! The rules as `layers.toml` states them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The order of crates and rooms, the limits, and the exceptions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRules {
    /// Crates, lowest first. A crate may import those before it.
    pub(crate) crates: Vec<String>,
    /// The rooms of a crate, lowest first, by the name of the crate. A room may import those before it.
    pub(crate) rooms: BTreeMap<String, Vec<String>>,
    /// Crates whose root is limited to [`LayerLimits::public_items_per_crate_root`].
    pub(crate) small_crate_roots: Vec<String>,
    /// The limits.
    pub(crate) limits: LayerLimits,
    /// Exceptions to the rules.
    #[serde(default)]
    pub(crate) exceptions: Vec<LayerException>,
}

/// The limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerLimits {
    /// Names of the project that one file imports, tests apart.
    pub(crate) imported_names_per_file: usize,
    /// Public items at the root of a crate. A `pub mod` counts its items.
    pub(crate) public_items_per_crate_root: usize,
    /// Types of the workspace that have the same name.
    pub(crate) types_with_one_name: usize,
    /// Names of constants that name no limited quantity.
    pub(crate) bare_constant_names: Vec<String>,
}

/// One file that may break one rule.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerException {
    /// The file, from the root of the repository, or the name of a type.
    pub file: String,
    /// The rule, as [`crate::LayerViolation::rule`] names it.
    pub rule: String,
    /// The room, crate or name that the rule forbids there, or the largest number that is permitted.
    pub found: String,
    /// Why it is permitted.
    pub reason: String,
}

impl LayerRules {
    /// Reads `layers.toml`.
    ///
    /// # Errors
    /// If it cannot be read or has a key that is not known.
    pub fn read(path: &Path) -> Result<LayerRules, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Permits another exception.
    pub fn permit(&mut self, exception: LayerException) {
        self.exceptions.push(exception);
    }
}
