use std::str::FromStr;

/// Signals that batch systems can send some time before they end a job.
const KNOWN: [(&str, i32); 3] = [("USR1", 10), ("USR2", 12), ("XCPU", 24)];

/// A signal that announces the end of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarnSignal {
    /// Name as in `kill -l`.
    pub name: &'static str,
    /// Its number.
    pub number: i32,
}

impl FromStr for WarnSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<WarnSignal, String> {
        let word = text.trim().to_ascii_uppercase();
        let word = word.strip_prefix("SIG").unwrap_or(&word);
        let found = KNOWN.iter().find(|(name, number)| *name == word || number.to_string() == word);
        let signal = found.map(|&(name, number)| WarnSignal { name, number });
        signal.ok_or_else(|| format!("invalid warning signal {text:?}; expected USR1, USR2 or XCPU"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        for text in ["USR1", "SIGUSR1", "sigusr1", " usr1 ", "10"] {
            assert_eq!(text.parse(), Ok(WarnSignal { name: "USR1", number: 10 }), "{text}");
        }
        for text in ["", "KILL", "SIG", "TERM", "9", "USR3"] {
            assert!(text.parse::<WarnSignal>().is_err(), "{text}");
        }
    }
}
