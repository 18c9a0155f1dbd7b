//! The identity of a table set or database.

use std::fmt;
use std::str::FromStr;

/// The 128-bit guid that every row of a database has and every table name ends with.
///
/// This project writes guids in UUID form. Other tools write 32 hex digits without dashes (an MD5) or any text. A
/// foreign guid is therefore text, and a `Guid` only if it has the UUID form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Guid(u128);

impl Guid {
    /// Creates a guid from 128 bits, usually a hash of the run id and the input guids.
    pub const fn from_bits(bits: u128) -> Guid {
        Guid(bits)
    }

    /// Returns the 128 bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Returns the suffix of every table name, which is also the value of the metadata tag `uuid`: "_" and the guid
    /// with "_" instead of "-".
    pub fn suffix(&self) -> String {
        format!("_{self}").replace('-', "_")
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        let part = |low: u32, width: u32| (bits >> low) & ((1 << width) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 32),
            part(80, 16),
            part(64, 16),
            part(48, 16),
            part(0, 48)
        )
    }
}

/// Error: the text is not a guid in the form that this project writes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("read {text:?} as a guid: expected 8-4-4-4-12 lower-case hex digits")]
pub struct NotAGuid {
    /// The rejected text.
    pub text: String,
}

impl FromStr for Guid {
    type Err = NotAGuid;

    /// Accepts exactly the texts that `Display` writes, so that each guid has one text.
    fn from_str(text: &str) -> Result<Guid, NotAGuid> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        u128::from_str_radix(&digits, 16)
            .ok()
            .map(Guid)
            .filter(|guid| guid.to_string() == text)
            .ok_or_else(|| NotAGuid { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_written_as_a_uuid_and_read_back() {
        let guid = Guid::from_bits(0xeca2_6941_bc51_47d1_a298_3961_edb6_dbb6);
        assert_eq!(guid.to_string(), "eca26941-bc51-47d1-a298-3961edb6dbb6");
        assert_eq!(guid.suffix(), "_eca26941_bc51_47d1_a298_3961edb6dbb6");
        assert_eq!(guid.to_string().parse(), Ok(guid));
        assert_eq!(Guid::from_bits(1).to_string(), "00000000-0000-0000-0000-000000000001");
    }

    #[test]
    fn other_spellings_of_a_guid_are_refused() {
        for text in
            ["", "-", "eca26941bc5147d1a2983961edb6dbb6", "ECA26941-BC51-47D1-A298-3961EDB6DBB6", "+1"]
        {
            assert!(text.parse::<Guid>().is_err(), "{text}");
        }
    }
}
