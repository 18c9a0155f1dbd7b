//! `--package`: writes `index.yaml` beside the database, by which AMD's tools open it.

use crate::input::listing::INDEX_NAME;
use rpd_console::Failure;
use rpd_files::{create_output, open_input, read_head, remove_output, rename_output, set_output_mode};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// First bytes of an index that a merge wrote. No other index is replaced.
const BEGINNING: &str = "# Written by rpd-merge.";

/// Returns the place of the index of a database.
fn index_of(output: &Path) -> PathBuf {
    output.with_file_name(INDEX_NAME)
}

/// Fails if another file than an index of a merge is at the place of the index, or, without `force`, if it is the index of
/// another database.
pub(crate) fn check_place(output: &Path, force: bool) -> Result<(), Failure> {
    let index = index_of(output);
    match open_input(&index) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::write(&index, &error)),
        Ok(_) => {}
    }
    let own = index_text(output)?;
    // One more byte shows whether the file is longer.
    let found = read_head(&index, own.len() as u64 + 1).map_err(|error| Failure::write(&index, &error))?;
    let refuse = |problem: &str| Err(Failure::output(format!("--package: {} {problem}", index.display())));
    if !found.starts_with(BEGINNING.as_bytes()) {
        return refuse("is there already, and rpd-merge did not write it; choose another folder with -o");
    }
    if !force && found != own.as_bytes() {
        return refuse(
            "is the index of another database; choose another folder with -o, or replace it with --force",
        );
    }
    Ok(())
}

/// Writes the index of a finished database, with the same permissions. The file appears only when it is complete.
pub(crate) fn write(output: &Path) -> Result<(), Failure> {
    let index = index_of(output);
    let text = index_text(output)?;
    let draft = index.with_file_name(format!("{INDEX_NAME}.{}.partial", std::process::id()));
    let made = std::fs::metadata(output).and_then(|database| {
        create_output(&draft, 0o600)?.write_all(text.as_bytes())?;
        set_output_mode(&draft, database.permissions().mode() & 0o777)?;
        rename_output(&draft, &index)
    });
    made.map_err(|error| {
        let _ = remove_output(&draft);
        Failure::write(&index, &error)
    })
}

/// Returns the content of the index of a database.
fn index_text(output: &Path) -> Result<String, Failure> {
    let name = output.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::internal("the output has no name"))?;
    Ok(format!(
        "{BEGINNING}\nrocprofiler-sdk:\n  rocpd:\n    files:\n    - {}\n    path: .\n    rocpd_package_version: '1.0'\n",
        yaml_text(name)
    ))
}

/// Returns a text in double quotes. YAML has the escapes of JSON, and allows no other control characters.
fn yaml_text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                quoted += &format!("\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
