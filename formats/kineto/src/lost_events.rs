use crate::SOURCE;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_translator::Translator;
use std::collections::BTreeMap;

/// Elements of the events that yield no row, by reason.
#[derive(Debug, Default)]
pub(crate) struct LostEvents {
    /// Offset of the first element and number of elements.
    by_reason: BTreeMap<&'static str, (u64, u64)>,
}

impl LostEvents {
    /// Counts the lost element at this offset of the file in the table that its row would be in.
    pub(crate) fn add(
        &mut self,
        out: &mut Translator<'_>,
        at: u64,
        (why, cause): (&'static str, LossCause),
        table: Option<TableId>,
    ) {
        self.by_reason.entry(why).or_insert((at, 0)).1 += 1;
        out.lose("events", Loss { source: SOURCE, table, cause, rows: Some(1) });
    }

    /// Records a loss of unknown size.
    pub(crate) fn add_unknown(out: &mut Translator<'_>, cause: LossCause) {
        out.lose_uncounted(Loss { source: SOURCE, table: Some(rocpd::EVENT), cause, rows: None });
    }

    /// Adds one warning per reason.
    pub(crate) fn warn(self, out: &mut Translator<'_>) {
        for (why, (at, count)) in self.by_reason {
            out.warn(match count {
                1 => format!("an event at byte {at} is left out: {why}"),
                _ => format!("{count} events are left out, the first one at byte {at}: {why}"),
            });
        }
    }
}
