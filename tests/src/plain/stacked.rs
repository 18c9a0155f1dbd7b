use super::create;
use super::input::{ATTACHED, PlainInput};
use rusqlite::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All inputs beside each other, as AMD's merge does it: every table copied as it is, under its own
/// name, and `rocpd_<x>` views that are `UNION ALL` of them. SQLite takes no more than 500.
pub fn stacked(inputs: &[PathBuf], path: &Path) -> Result<()> {
    let output = create(path)?;
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut views = Vec::new();
    for path in inputs {
        let input = PlainInput::attach(&output, path)?;
        output.execute_batch("BEGIN")?;
        for table in &input.tables {
            output.execute_batch(&table.sql)?;
            let name = format!("\"{}{}\"", table.name, input.uuid);
            output.execute_batch(&format!("INSERT INTO main.{name} SELECT * FROM {ATTACHED}.{name}"))?;
            members.entry(table.name.clone()).or_default().push(format!("SELECT * FROM {name}"));
        }
        output.execute_batch("COMMIT")?;
        if views.is_empty() {
            views = input.views;
        }
        PlainInput::detach(&output)?;
    }
    for (name, sql) in &views {
        match members.get(name) {
            Some(members) => {
                let members = members.join(" UNION ALL ");
                output.execute_batch(&format!("CREATE VIEW \"{name}\" AS {members}"))?;
            }
            None => output.execute_batch(sql)?,
        }
    }
    Ok(())
}
