use super::Bases;
use super::json_ids;
use crate::clock::Fit;
use crate::input::source::{Source, StackSpace};
use rpd_shard::model::{
    Cells, Column, JsonRef, Keys, Kind, Local, LocalNs, Merged, Nulls, OwnedValue, Rows, TableId, TextCells,
    Value, rocpd,
};
use std::collections::BTreeMap;

/// References that led nowhere, per table and column: they became NULL or point at a placeholder.
pub type Replaced = BTreeMap<(TableId, String), u64>;

/// Everything that turns ids and times of one source into those of the output.
#[derive(Debug)]
pub struct SourceMap<'a> {
    /// The source.
    pub source: &'a Source,
    /// Its bases.
    pub bases: &'a Bases,
    /// Global id of the process's node.
    pub node: i64,
    /// Global ids of the shard's strings, by id in the shard minus one; 0 where lost.
    pub strings: &'a [i64],
    /// Global id of the string that stands for lost ones; 0 where no string is lost.
    pub lost_string: i64,
    /// The clock.
    pub fit: Fit,
}

impl SourceMap<'_> {
    /// Rewrites rows. The only way from [`Local`] to [`Merged`].
    pub fn renumber(&self, mut rows: Rows<Local>, replaced: &mut Replaced) -> Rows<Merged> {
        let table = rows.table.clone();
        let base = self.bases.keys.get(&table.id).copied().unwrap_or(0);
        let keys = match &rows.keys {
            Keys::Dense(first) => Keys::Dense(first + base),
            Keys::Sparse(keys) => Keys::Sparse(keys.iter().map(|k| k + base).collect()),
        };
        // What a span without an end, or a row without a time, falls back to.
        let span = table.span().map(|(first, _)| rows.columns[first].clone());
        let mut columns = std::mem::take(&mut rows.columns);
        for (column, cells) in table.columns.iter().zip(&mut columns) {
            let mut lost = 0;
            match &column.kind {
                Kind::Ref(target) => self.refs(column, *target, cells, rows.len, &mut lost),
                Kind::Str => self.strings(column, cells, rows.len, &mut lost),
                Kind::Stack => map_ints(cells, rows.len, |v| self.stack(v)),
                Kind::Time => self.times(column, cells, rows.len, span.as_ref(), &mut lost),
                Kind::Json(refs) if !refs.is_empty() => self.json(refs, cells, &mut lost),
                Kind::Int | Kind::Real | Kind::Text | Kind::Json(_) | Kind::Any => {
                    keep_constraints(column, cells, rows.len, &mut lost);
                }
            }
            if lost > 0 {
                *replaced.entry((table.id, column.name.clone())).or_default() += lost;
            }
        }
        rows.into_merged(keys, columns)
    }

    fn refs(&self, column: &Column, target: TableId, cells: &mut Cells, rows: usize, lost: &mut u64) {
        let base = self.bases.keys.get(&target).copied().unwrap_or(0);
        let fixed = match target {
            rocpd::INFO_NODE => Some(self.node),
            rocpd::INFO_PROCESS => Some(base + 1),
            _ => None,
        };
        let space = self.source.spaces.get(&target);
        let fallback = match fixed {
            Some(id) => column.sql.not_null.then_some(id),
            None => space.and_then(|s| s.placeholder).map(|key| key + base).filter(|_| column.sql.not_null),
        };
        map_all(cells, rows, fallback, lost, |key| match fixed {
            Some(id) => (key == 1).then_some(id),
            None => space.filter(|s| s.contains(key)).map(|_| key + base),
        });
    }

    fn strings(&self, column: &Column, cells: &mut Cells, rows: usize, lost: &mut u64) {
        let lost_string = (self.lost_string != 0).then_some(self.lost_string);
        // A name that is lost still counts in AMD's views, which join strings inside.
        let absent = lost_string.filter(|_| column.sql.not_null);
        map_all(cells, rows, absent, lost, |id| {
            usize::try_from(id.checked_sub(1)?)
                .ok()
                .and_then(|i| self.strings.get(i))
                .copied()
                .filter(|id| *id != 0)
        });
        if let (Cells::Int { values, nulls }, Some(lost_string)) = (&mut *cells, lost_string) {
            let unresolved = std::mem::take(nulls);
            for (i, value) in values.iter_mut().enumerate().take(rows) {
                // map_all leaves the value of an unresolved id at -1 and of a NULL at 0.
                match unresolved.get(i) {
                    true if *value == -1 => *value = lost_string,
                    true => nulls.set(i),
                    false => {}
                }
            }
        }
    }

    fn stack(&self, value: i64) -> i64 {
        match &self.source.stacks {
            _ if value == 0 => 0,
            StackSpace::Offset(_) => value + self.bases.stacks,
            StackSpace::Dictionary(values) => {
                values.binary_search(&value).map_or(0, |i| i as i64 + 1) + self.bases.stacks
            }
        }
    }

    fn times(&self, column: &Column, cells: &mut Cells, rows: usize, start: Option<&Cells>, lost: &mut u64) {
        let process = self.source.process.first_seen;
        let fallback = |i: usize| start.and_then(|s| s.int(i)).unwrap_or(process);
        let mut values = Vec::with_capacity(rows);
        let mut nulls = Nulls::default();
        for i in 0..rows {
            let time = match cells.int(i) {
                Some(time) => time,
                None if column.sql.not_null => {
                    *lost += 1;
                    fallback(i)
                }
                None => {
                    nulls.set(i);
                    0
                }
            };
            values.push(self.fit.map(LocalNs(time)).ns());
        }
        *cells = Cells::Int { values, nulls };
    }

    fn json(&self, refs: &[JsonRef], cells: &mut Cells, lost: &mut u64) {
        match cells {
            // Distinct texts once, however many rows have them.
            Cells::Text(text) => {
                let mut rewritten =
                    TextCells { codes: std::mem::take(&mut text.codes), ..TextCells::default() };
                for code in 0..text.ends.len() as u32 {
                    rewritten.add_entry(&self.json_text(refs, text.entry(code), lost));
                }
                *text = rewritten;
            }
            Cells::Any(values) => {
                for value in values {
                    if let OwnedValue::Text(text) = value {
                        *text = self.json_text(refs, text, lost).into();
                    }
                }
            }
            _ => {}
        }
    }

    fn json_text(&self, refs: &[JsonRef], text: &[u8], lost: &mut u64) -> Vec<u8> {
        let Ok(mut json) = std::str::from_utf8(text).map(str::to_owned) else { return text.to_vec() };
        for reference in refs {
            let Some((place, key)) = json_ids::find(&json, &reference.path) else { continue };
            let space = self.source.spaces.get(&reference.table);
            let base = self.bases.keys.get(&reference.table).copied().unwrap_or(0);
            let id = match space.filter(|s| s.contains(key)) {
                Some(_) => (key + base).to_string(),
                None => {
                    *lost += 1;
                    "null".to_owned()
                }
            };
            json.replace_range(place, &id);
        }
        json.into_bytes()
    }
}

fn map_ints(cells: &mut Cells, rows: usize, map: impl Fn(i64) -> i64) {
    match cells {
        Cells::Int { values, .. } => values.iter_mut().for_each(|v| *v = map(*v)),
        Cells::Absent => {}
        // Only a damaged shard has anything but integers here.
        _ => *cells = Cells::Int { values: vec![0; rows], nulls: all_null(rows) },
    }
}

fn all_null(rows: usize) -> Nulls {
    let mut nulls = Nulls::default();
    (0..rows).for_each(|i| nulls.set(i));
    nulls
}

/// Maps ids. One that leads nowhere, or is no integer, becomes `fallback` or else NULL (with -1 in
/// its place), and is counted; a NULL stays NULL unless there is a fallback.
fn map_all(
    cells: &mut Cells,
    rows: usize,
    fallback: Option<i64>,
    lost: &mut u64,
    map: impl Fn(i64) -> Option<i64>,
) {
    if matches!(cells, Cells::Absent) && fallback.is_none() {
        return;
    }
    let mut values = Vec::with_capacity(rows);
    let mut nulls = Nulls::default();
    for i in 0..rows {
        let (id, missing) = match cells.get(i) {
            Value::Null => (None, 0),
            Value::Int(key) => (map(key), -1),
            _ => (None, -1),
        };
        values.push(id.or(fallback).unwrap_or_else(|| {
            nulls.set(i);
            missing
        }));
        *lost += u64::from(id.is_none() && (missing == -1 || fallback.is_some()));
    }
    *cells = Cells::Int { values, nulls };
}

/// Values that SQLite would refuse: NULL where it is not allowed, a word that a CHECK does not list.
/// Only a damaged or hostile shard has any.
fn keep_constraints(column: &Column, cells: &mut Cells, rows: usize, lost: &mut u64) {
    let sql = &column.sql;
    if sql.not_null && sql.default.is_none() && cells.filled(rows) < rows {
        *lost += (rows - cells.filled(rows)) as u64;
        let replacement = match column.kind {
            Kind::Text => OwnedValue::Text(Box::default()),
            _ => OwnedValue::Int(0),
        };
        let value = |i| match cells.get(i) {
            Value::Null => replacement.clone(),
            value => value.to_owned(),
        };
        *cells = Cells::Any((0..rows).map(value).collect());
    }
    if !sql.one_of.is_empty() && !matches!(cells, Cells::Absent) {
        let allowed = |v: Value<'_>| match v {
            Value::Null => true,
            Value::Text(text) => sql.one_of.iter().any(|word| word.as_bytes() == text),
            _ => false,
        };
        let refused = (0..rows).filter(|i| !allowed(cells.get(*i))).count() as u64;
        if refused > 0 {
            *lost += refused;
            let keep =
                |i| Some(cells.get(i)).filter(|v| allowed(*v)).map_or(OwnedValue::Null, Value::to_owned);
            *cells = Cells::Any((0..rows).map(keep).collect());
        }
    }
}
