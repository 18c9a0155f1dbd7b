//! The location of the site file.

use std::path::{Path, PathBuf};

/// Path below the installation prefix and below `/`.
const PLACE: &str = "etc/rpd/rpd.toml";

/// Returns the site file, if it exists: that of the running installation, else that of the machine. No variable or
/// option changes its location.
pub fn site_file() -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    let prefix = program.as_deref().and_then(Path::parent).and_then(Path::parent);
    let places = prefix.into_iter().chain([Path::new("/")]).map(|place| place.join(PLACE));
    places.into_iter().find(|path| path.exists())
}
