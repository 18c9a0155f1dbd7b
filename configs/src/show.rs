//! Prints settings, in the form of a settings file.

use crate::layers::{LayeredSettings, Setting, SettingOrigin};
use std::fmt::Write;

impl LayeredSettings {
    /// Returns a table with the origin of each value. Defaults are commented out with `#`.
    pub fn show(&self, table: &str) -> String {
        let lines: Vec<(String, String)> =
            self.settings.iter().map(|setting| (line(setting), setting.origin.to_string())).collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
        let mut text = format!("[{table}]\n");
        for (line, origin) in lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line:width$}  # {origin}");
        }
        text
    }
}

fn line(setting: &Setting) -> String {
    let value = match &setting.values {
        values if setting.is_switch => values.is_some().to_string(),
        None => "\"\"".to_owned(),
        Some(values) => match &values[..] {
            [one] => text(one),
            several => format!("[{}]", several.iter().map(|one| text(one)).collect::<Vec<_>>().join(", ")),
        },
    };
    // An option that the site has locked as unset has no value that a file could contain.
    let is_nothing = setting.values.is_none() && !setting.is_switch;
    let sign = if setting.origin == SettingOrigin::Default || is_nothing { "# " } else { "" };
    format!("{sign}{} = {value}", setting.key)
}

/// Formats a basic string of TOML.
fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04X}", letter as u32);
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
