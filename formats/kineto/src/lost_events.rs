use crate::SOURCE;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_translator::Translator;
use std::collections::BTreeMap;
use std::io::Write;

/// Elements of the events that yield no row, by reason.
#[derive(Debug, Default)]
pub(crate) struct LostEvents {
    /// Offset of the first element and number of elements.
    by_reason: BTreeMap<&'static str, (u64, u64)>,
}

impl LostEvents {
    /// Counts the lost element at this offset of the file in the table that its row would be in.
    pub(crate) fn add<W: Write>(
        &mut self,
        out: &mut Translator<W>,
        at: u64,
        (why, cause): (&'static str, LossCause),
        table: Option<TableId>,
    ) {
        self.by_reason.entry(why).or_insert((at, 0)).1 += 1;
        out.lose("events", Loss { source: SOURCE, table, cause, rows: Some(1) });
    }

    /// Records a loss of unknown size.
    pub(crate) fn add_unknown<W: Write>(out: &mut Translator<W>, cause: LossCause) {
        out.lose_uncounted(Loss { source: SOURCE, table: Some(rocpd::EVENT), cause, rows: None });
    }

    /// Adds one warning per reason.
    pub(crate) fn warn<W: Write>(self, out: &mut Translator<W>) {
        for (why, (at, count)) in self.by_reason {
            out.warn(match count {
                1 => format!("an event at byte {at} is left out: {why}"),
                _ => format!("{count} events are left out, the first one at byte {at}: {why}"),
            });
        }
    }
}
