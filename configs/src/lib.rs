//! Options in TOML files.
//!
//! A file has a table for each program. Its keys are the program's long options:
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
//! Precedence, highest first: options that the site file locks, the command line, environment variables, the named file
//! (`--config`, `RPD_CONFIG`), the site file, defaults. The site file locks options like this:
//!
//! ```toml
//! [collect]
//! probes = "off"
//! locked = ["probes"]
//! ```
//!
//! The program's own parser defines the options and reads their values; nothing of it is repeated here.

mod file;
mod layers;
mod preset;
mod reconcile;
mod show;
mod site;

pub use file::FileError;
pub use layers::{LayeredSettings, Program, Setting, SettingOrigin};
pub use preset::PRESETS;
pub use site::site_file;
