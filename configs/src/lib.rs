//! Options that stand in TOML files.
//!
//! A file has a table for each program, whose keys are the program's long options:
//!
//! ```toml
//! [collect]
//! trace = ["mpi", "system"]
//! max-size = "200M"
//!
//! [merge]
//! strict = true
//! ```
//!
//! What is typed counts before a variable of the environment, that before the file that was named (`--config`,
//! `RPD_CONFIG`), that before the site's file, and that before the default. What the site has locked counts before all:
//!
//! ```toml
//! [collect]
//! probes = "off"
//! locked = ["probes"]
//! ```
//!
//! A program's own parser says what its options are and reads their values: nothing of it is repeated here.

mod file;
mod layers;
mod preset;
mod reconcile;
mod show;
mod site;

pub use file::FileError;
pub use layers::{ConfigError, LayeredSettings, Program, Setting, SettingOrigin};
pub use preset::PRESETS;
pub use site::site_file;
