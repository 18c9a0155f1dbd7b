use std::env;
use std::path::{Path, PathBuf};

/// Path of a built program or library of the workspace: beside the test executable, or in
/// `RPD_BIN_DIR`.
///
/// # Panics
/// If it is not there.
pub fn binary(name: &str) -> PathBuf {
    let path = binary_folder().join(name);
    assert!(
        path.is_file(),
        "{name} is not in {}: run `cargo build --workspace` first (with --release for release tests)",
        binary_folder().display()
    );
    path
}

/// Path of a built program of the workspace, if it is there.
pub fn built(name: &str) -> Option<PathBuf> {
    Some(binary_folder().join(name)).filter(|path| path.is_file())
}

/// `target/<profile>`: test executables are in `deps` below it.
fn binary_folder() -> PathBuf {
    if let Some(folder) = env::var_os("RPD_BIN_DIR") {
        return folder.into();
    }
    let executable = env::current_exe().unwrap_or_default();
    let folder = executable.parent().unwrap_or(Path::new("."));
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => folder.parent().unwrap_or(folder).to_owned(),
        _ => folder.to_owned(),
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// The Python for workloads: `RPD_PYTHON`, the virtual environment of ci/setup, or the system's.
pub fn python() -> PathBuf {
    if let Some(python) = env::var_os("RPD_PYTHON") {
        return python.into();
    }
    let own = repository().join("target/venv/bin/python3");
    if own.exists() { own } else { "python3".into() }
}
