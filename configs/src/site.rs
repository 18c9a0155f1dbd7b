//! Where a site has its settings.

use std::path::{Path, PathBuf};

/// Below the prefix that a program is installed in, and below `/`.
const PLACE: &str = "etc/rpd/rpd.toml";

/// The site's file, if there is one: that of the installation that runs, else that of the machine. No variable and no
/// option names another one.
pub fn site_file() -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    let prefix = program.as_deref().and_then(Path::parent).and_then(Path::parent);
    let places = prefix.into_iter().chain([Path::new("/")]).map(|place| place.join(PLACE));
    places.into_iter().find(|path| path.exists())
}
