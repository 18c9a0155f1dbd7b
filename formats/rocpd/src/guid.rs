//! The identity of a database.

use std::fmt;
use std::str::FromStr;

/// The 128-bit guid that every row of a database carries and every table name ends in.
///
/// Ours are written like a UUID. Other tools write 32 hex digits without dashes (an MD5), or
/// anything else: a foreign guid is text, and only one of this form is a `Guid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Guid(u128);

impl Guid {
    /// From 128 bits, usually a hash of the run id and the input guids.
    pub const fn from_bits(bits: u128) -> Guid {
        Guid(bits)
    }

    /// The 128 bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// The end of every table name, and the value of the metadata tag `uuid`: "_" and the guid with
    /// "_" for "-".
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

/// The text is not a guid in the form that we write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("read {text:?} as a guid: expected 8-4-4-4-12 lower-case hex digits")]
pub struct NotAGuid {
    /// The text.
    pub text: String,
}

impl FromStr for Guid {
    type Err = NotAGuid;

    /// Accepts what `Display` writes and nothing else, so that text and guid stay one to one.
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
