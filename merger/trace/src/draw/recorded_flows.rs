//! Flows that an input stores as args of their ends, such as those from an operator to its backward operator in files of
//! the PyTorch profiler.

use super::flows::RECORDED_BIT;
use crate::item::FlowEnd;
use rpd_shard::model::Value;
use twox_hash::XxHash3_64;

/// Which end of a flow an arg is, by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordedEnd {
    Start,
    Step,
    End,
}

impl RecordedEnd {
    /// Returns the end that args of this type are; `None` for other args.
    pub(super) fn of_type(kind: &[u8]) -> Option<RecordedEnd> {
        match kind {
            b"flow start" => Some(RecordedEnd::Start),
            b"flow step" => Some(RecordedEnd::Step),
            b"flow end" => Some(RecordedEnd::End),
            _ => None,
        }
    }

    /// Returns the end with a number that all ends of its category with this value have. `unit` is the index of its unit in
    /// the job.
    pub(super) fn numbered(self, unit: usize, category: &str, value: Value<'_>) -> FlowEnd {
        let mut name = category.as_bytes().to_vec();
        name.push(0);
        match value {
            Value::Text(text) | Value::Blob(text) => name.extend_from_slice(text),
            Value::Int(value) => name.extend_from_slice(value.to_string().as_bytes()),
            Value::Real(value) => name.extend_from_slice(&value.to_le_bytes()),
            Value::Null => {}
        }
        let hash = XxHash3_64::oneshot_with_seed(unit as u64, &name);
        let number = (hash % RECORDED_BIT) | RECORDED_BIT;
        match self {
            RecordedEnd::Start => FlowEnd::From(number),
            RecordedEnd::Step => FlowEnd::Through(number),
            RecordedEnd::End => FlowEnd::To(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_one_flow_have_one_number_in_their_process_only() {
        let start = RecordedEnd::of_type(b"flow start").unwrap();
        let end = RecordedEnd::of_type(b"flow end").unwrap();
        let number = |end: FlowEnd| match end {
            FlowEnd::From(number) | FlowEnd::To(number) | FlowEnd::Through(number) => number,
        };
        let of = |unit, category, value: &str| {
            let value = Value::Text(value.as_bytes());
            let both = [start, end].map(|end| number(end.numbered(unit, category, value)));
            assert_eq!(both[0], both[1]);
            both[0]
        };
        let one = of(3, "fwdbwd", "17");
        assert_eq!(one >> 62, 1);
        assert_eq!(one, number(start.numbered(3, "fwdbwd", Value::Int(17))));
        for other in [of(4, "fwdbwd", "17"), of(3, "other", "17"), of(3, "fwdbwd", "18")] {
            assert_ne!(one, other);
        }
        assert_eq!(RecordedEnd::of_type(b"text"), None);
    }
}
