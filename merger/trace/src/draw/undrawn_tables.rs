//! Counts carried tables, which a trace cannot show.

use rpd_console::Failure;
use rpd_run::{IdRanges, RunTables};
use rpd_shard::model::{Schema, TableId};

/// Returns the name and the number of rows of each of these tables that has rows.
pub(super) fn others(tables: &RunTables) -> Result<Vec<(String, u64)>, Failure> {
    let every = IdRanges::range(i64::MIN, i64::MAX);
    let known = |table: TableId| Schema::builtin().get(table).is_some();
    let spaces = tables.database().spaces().iter();
    let others = spaces.flat_map(|space| &space.tables).filter(|table| !known(table.table.id));
    let mut found = Vec::new();
    for table in others {
        let mut count = 0;
        tables.all(table.table.id, &every, &[], &mut |_, places| {
            count += places.len() as u64;
            Ok(())
        })?;
        if count > 0 {
            found.push((table.table.name.to_string(), count));
        }
    }
    Ok(found)
}
