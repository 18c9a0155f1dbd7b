//! Checks the order of crates and rooms: each imports only what is below it.
//!
//! `ci/layers/layers.toml` contains the order, the limits and the exceptions. [`SourceTree`] reads the workspace,
//! and [`violations`] compares it with the rules. A room is a module directly below a crate root, or a deeper
//! module that the order names.

mod names;
mod rules;
mod source_file;
mod source_tree;
mod violations;

pub use names::{is_one_word, share_of_one_word_names};
pub use rules::{LayerException, LayerRules};
pub use source_tree::{SourceTree, repository};
pub use violations::{LayerViolation, unneeded_exceptions, violations};
