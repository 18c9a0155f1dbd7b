use super::SourceBases;
use super::json_ids::{self, JsonId};
use crate::agree::job_clocks::ProcessFit;
use crate::input::expand;
use crate::input::{BuiltinString, InputSource, RowOrigin, StackSpace, StringMap};
use rpd_shard::model::{
    Cells, Column, JsonRef, Keys, Kind, Local, Merged, Nulls, OwnedValue, Rows, TableId, TextCells, Value,
    rocpd,
};
use std::collections::BTreeMap;

/// Number of replaced values, per table and column. These are references to missing rows, which became NULL or refer
/// to a placeholder, and values that SQLite would reject.
pub(crate) type ReplacedValues = BTreeMap<(TableId, String), u64>;

/// Mappings from ids and times of one source to those of the output.
#[derive(Debug)]
pub(crate) struct SourceMap<'a> {
    /// The source.
    pub source: &'a InputSource,
    /// Id bases of the source.
    pub bases: &'a SourceBases,
    /// Global ids of its nodes, by their keys.
    pub nodes: Vec<(i64, i64)>,
    /// Global ids of its strings.
    pub strings: &'a StringMap,
    /// Conversion of its times to job time.
    pub fit: ProcessFit<'a>,
}

/// Result of mapping an id of a column.
enum Mapped {
    Id(i64),
    Null,
    /// The id refers to no row.
    Lost,
}

/// Ids of rows with consecutive keys.
#[derive(Clone, Copy)]
struct Ids {
    /// First key.
    first: i64,
    /// Number of keys.
    len: u64,
    /// Id of the first row.
    id: i64,
}

impl Ids {
    #[inline]
    fn has(&self, key: i64) -> bool {
        (key.wrapping_sub(self.first) as u64) < self.len
    }

    #[inline]
    fn id(&self, key: i64) -> Option<i64> {
        self.has(key).then(|| self.id + (key - self.first))
    }
}

impl SourceMap<'_> {
    /// Renumbers rows.
    pub(crate) fn renumber(
        &self,
        rows: Rows<Local>,
        origin: RowOrigin,
        replaced: &mut ReplacedValues,
    ) -> Rows<Merged> {
        self.renumber_columns(rows, origin, None, replaced)
    }

    /// Renumbers the `wanted` columns of rows, or all of them; the others may be left as they are. This is the only
    /// conversion from [`Local`] to [`Merged`].
    pub(crate) fn renumber_columns(
        &self,
        mut rows: Rows<Local>,
        origin: RowOrigin,
        wanted: Option<&[&str]>,
        replaced: &mut ReplacedValues,
    ) -> Rows<Merged> {
        let table = rows.table.clone();
        let keys = self.keys(table.id, &rows.keys, rows.len, origin);
        // If a span lacks its start or end, the other time replaces it.
        let has_time = |cells: &Cells| matches!(cells, Cells::Int { nulls, .. } if !nulls.any());
        let incomplete = |(column, cells): (&Column, &Cells)| column.kind == Kind::Time && !has_time(cells);
        let some_incomplete = table.columns.iter().zip(&rows.columns).any(incomplete);
        let span = table.span().filter(|_| some_incomplete);
        let span = span.map(|(first, last)| (first, rows.columns[first].clone(), rows.columns[last].clone()));
        let mut columns = std::mem::take(&mut rows.columns);
        for (place, (column, cells)) in table.columns.iter().zip(&mut columns).enumerate() {
            if wanted.is_some_and(|wanted| !wanted.contains(&&*column.name)) {
                continue;
            }
            let mut count = 0;
            match &column.kind {
                Kind::Ref(target) => self.refs(column, *target, origin, cells, rows.len, &mut count),
                Kind::Str => self.strings(column, origin, cells, rows.len, &mut count),
                Kind::Stack => self.stacks(cells, rows.len, &mut count),
                Kind::Time => {
                    let other =
                        span.as_ref().map(|(first, start, end)| if place == *first { end } else { start });
                    self.times(column, cells, rows.len, other, &mut count);
                }
                Kind::Json(refs) => {
                    keep_constraints(column, cells, rows.len, &mut count);
                    self.json(refs, cells, &mut count);
                }
                Kind::Int | Kind::Real | Kind::Text | Kind::Any => {
                    keep_constraints(column, cells, rows.len, &mut count);
                }
            }
            if count > 0 {
                *replaced.entry((table.id, column.name.clone())).or_default() += count;
            }
        }
        rows.into_merged(keys, columns)
    }

    /// Returns the stack ids in a column of native rows, in the numbers of the output.
    pub(crate) fn renumbered_stacks(&self, rows: &Rows<Local>, column: &str) -> Cells {
        let mut cells = rows.column(column).clone();
        self.stacks(&mut cells, rows.len, &mut 0);
        cells
    }

    /// Renumbers the stack ids of native rows that become text. One that is lost becomes 0, so that the number of
    /// values stays the same.
    pub(crate) fn renumber_stack_args(&self, rows: &mut Rows<Local>, replaced: &mut ReplacedValues) {
        for name in expand::STACK_ARGS {
            let Some(place) = rows.table.position(name) else { continue };
            let cells = &rows.columns[place];
            if cells.filled(rows.len) == 0 {
                continue;
            }
            let (mut mapped, mut count) = (cells.clone(), 0);
            self.stacks(&mut mapped, rows.len, &mut count);
            let mut nulls = Nulls::default();
            (0..rows.len).filter(|i| cells.get(*i) == Value::Null).for_each(|i| nulls.set(i));
            let values = (0..rows.len).map(|i| mapped.int(i).unwrap_or(0)).collect();
            rows.columns[place] = Cells::Int { values, nulls };
            if count > 0 {
                *replaced.entry((rows.id(), name.to_owned())).or_default() += count;
            }
        }
    }

    /// Returns the ids of consecutive rows. Stored rows are numbered without gaps, whatever their keys are.
    fn keys(&self, table: TableId, keys: &Keys, rows: usize, origin: RowOrigin) -> Keys {
        let number = |key| match origin {
            RowOrigin::Stored => self.source.spaces.get(&table).and_then(|s| s.stored(key)).unwrap_or(key),
            RowOrigin::Expanded | RowOrigin::Placeholder => key,
        };
        let id = |key| self.bases.id(table, number(key));
        match keys {
            keys if table == rocpd::INFO_PROCESS => {
                Keys::Sparse((0..rows).map(|i| id(keys.get(i))).collect())
            }
            Keys::Dense(first) => Keys::Dense(id(*first)),
            Keys::Sparse(keys) => Keys::Dense(id(keys.first().copied().unwrap_or(0))),
        }
    }

    fn refs(
        &self,
        column: &Column,
        target: TableId,
        origin: RowOrigin,
        cells: &mut Cells,
        rows: usize,
        replaced: &mut u64,
    ) {
        let space = self.source.spaces.get(&target);
        let find = |key| match target {
            rocpd::INFO_NODE => {
                let id = self.nodes.iter().find(|(own, _)| *own == key)?.1;
                Some(Ids { first: key, len: 1, id })
            }
            rocpd::INFO_PROCESS => {
                let number = space?.stored(key)?;
                Some(Ids { first: key, len: 1, id: self.bases.id(target, number) })
            }
            _ => {
                let range = space?.range(key, target, origin)?;
                let id = self.bases.id(target, range.number);
                Some(Ids { first: range.first, len: range.next.abs_diff(range.first), id })
            }
        };
        let placeholder = match target {
            rocpd::INFO_NODE => self.nodes.first().map(|(_, id)| *id),
            rocpd::INFO_PROCESS => Some(self.bases.id(target, 1)),
            _ => space.and_then(|s| s.placeholder).map(|number| self.bases.id(target, number)),
        };
        let fallback = placeholder.filter(|_| column.sql.not_null);
        // Adjacent rows mostly refer to rows of one key range.
        let mut range = Ids { first: 0, len: 0, id: 0 };
        if let Cells::Int { values, nulls } = &mut *cells
            && !nulls.any()
        {
            let mut none = Nulls::default();
            for (i, value) in values.iter_mut().enumerate() {
                if !range.has(*value)
                    && let Some(found) = find(*value)
                {
                    range = found;
                }
                *value = match range.id(*value) {
                    Some(id) => id,
                    None => {
                        *replaced += 1;
                        fallback.unwrap_or_else(|| {
                            none.set(i);
                            0
                        })
                    }
                };
            }
            *nulls = none;
            return;
        }
        map_ids(
            cells,
            rows,
            replaced,
            |value| match value {
                Value::Null if !column.sql.not_null => Mapped::Null,
                Value::Int(key) => {
                    if !range.has(key)
                        && let Some(found) = find(key)
                    {
                        range = found;
                    }
                    range.id(key).map_or(Mapped::Lost, Mapped::Id)
                }
                _ => Mapped::Lost,
            },
            fallback,
        );
    }

    fn strings(
        &self,
        column: &Column,
        origin: RowOrigin,
        cells: &mut Cells,
        rows: usize,
        replaced: &mut u64,
    ) {
        let builtin = |string: BuiltinString| self.strings.builtin(string);
        // A row with a lost name still counts in AMD's views, because they use inner joins with strings.
        map_ids(
            cells,
            rows,
            replaced,
            |value| {
                let id = match value {
                    Value::Null if !column.sql.not_null => return Mapped::Null,
                    Value::Int(id) if id < 0 && origin == RowOrigin::Expanded => {
                        BuiltinString::from_id(id).and_then(builtin)
                    }
                    Value::Int(id) => self.strings.id(id),
                    _ => None,
                };
                id.map_or(Mapped::Lost, Mapped::Id)
            },
            builtin(BuiltinString::Lost),
        );
    }

    fn stacks(&self, cells: &mut Cells, rows: usize, replaced: &mut u64) {
        let base = self.bases.stacks;
        if let (Cells::Int { values, .. }, StackSpace::Offset(_)) = (&mut *cells, &self.source.stacks) {
            // Wrapping, because a NULL row may contain any number.
            values.iter_mut().filter(|v| **v != 0).for_each(|v| *v = v.wrapping_add(base));
            return;
        }
        map_ids(
            cells,
            rows,
            replaced,
            |value| match (value, value.stack_id(), &self.source.stacks) {
                (Value::Null, ..) => Mapped::Null,
                (_, Some(0), _) => Mapped::Id(0),
                (_, Some(key), StackSpace::Offset(max)) if (1..=*max).contains(&key) => {
                    Mapped::Id(key + base)
                }
                (_, Some(key), StackSpace::Dictionary(values)) => {
                    values.binary_search(&key).map_or(Mapped::Lost, |i| Mapped::Id(i as i64 + 1 + base))
                }
                _ => Mapped::Lost,
            },
            None,
        );
    }

    /// `other` contains the other times of the rows if the column belongs to a span.
    fn times(
        &self,
        column: &Column,
        cells: &mut Cells,
        rows: usize,
        other: Option<&Cells>,
        replaced: &mut u64,
    ) {
        if let Cells::Int { values, nulls } = &mut *cells
            && !nulls.any()
        {
            self.fit.map_all(values);
            return;
        }
        let process = self.source.process.first_seen;
        let fallback = |i: usize| other.and_then(|s| s.int(i)).unwrap_or(process);
        let mut values = Vec::with_capacity(rows);
        let mut nulls = Nulls::default();
        for i in 0..rows {
            let time = match cells.int(i) {
                Some(time) => time,
                None if column.sql.not_null => {
                    *replaced += 1;
                    fallback(i)
                }
                None => {
                    *replaced += u64::from(cells.get(i) != Value::Null);
                    nulls.set(i);
                    0
                }
            };
            values.push(time);
        }
        self.fit.map_all(&mut values);
        *cells = Cells::Int { values, nulls };
    }

    fn json(&self, refs: &[JsonRef], cells: &mut Cells, replaced: &mut u64) {
        match cells {
            // Rewrites each distinct text once, however many rows contain it.
            Cells::Text(text) => {
                let mut rewritten =
                    TextCells { codes: std::mem::take(&mut text.codes), ..TextCells::default() };
                for code in 0..text.ends.len() as u32 {
                    rewritten.add_entry(&self.json_text(refs, text.entry(code), replaced));
                }
                *text = rewritten;
            }
            Cells::Any(values) => {
                for value in values {
                    match value {
                        OwnedValue::Text(text) => *text = self.json_text(refs, text, replaced).into(),
                        // SQLite would interpret a blob as its binary JSON format.
                        OwnedValue::Blob(_) => {
                            *replaced += 1;
                            *value = OwnedValue::Null;
                        }
                        OwnedValue::Null | OwnedValue::Int(_) | OwnedValue::Real(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn json_text(&self, refs: &[JsonRef], text: &[u8], replaced: &mut u64) -> Vec<u8> {
        if text == b"{}" {
            return text.to_vec();
        }
        if !json_ids::is_json(text) {
            // One invalid text would make every query of a view fail that reads JSON from the column.
            *replaced += 1;
            return json_ids::wrapped(text);
        }
        // Texts may be invalid UTF-8. They stay unchanged if they cannot contain ids.
        let mut json = match String::from_utf8(text.to_vec()) {
            Ok(json) => json,
            Err(_) if refs.is_empty() => return text.to_vec(),
            Err(error) => {
                *replaced += 1;
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            }
        };
        for reference in refs {
            let (place, number) = match json_ids::find(&json, &reference.path) {
                JsonId::Nothing => continue,
                JsonId::Ambiguous => {
                    *replaced += 1;
                    return json_ids::wrapped(text);
                }
                JsonId::NoId(place) => (place, None),
                JsonId::Id(place, key) => {
                    (place, self.source.spaces.get(&reference.table).and_then(|s| s.stored(key)))
                }
            };
            let id = match number {
                Some(number) => self.bases.id(reference.table, number).to_string(),
                None => {
                    *replaced += 1;
                    "null".to_owned()
                }
            };
            json.replace_range(place, &id);
        }
        json.into_bytes()
    }
}

/// Maps the ids of a column. An id that refers to no row becomes `fallback`, or NULL without a fallback.
fn map_ids(
    cells: &mut Cells,
    rows: usize,
    replaced: &mut u64,
    mut map: impl FnMut(Value<'_>) -> Mapped,
    fallback: Option<i64>,
) {
    if matches!(cells, Cells::Absent) && matches!(map(Value::Null), Mapped::Null) {
        return;
    }
    let mut id_of = |value: Value<'_>| match map(value) {
        Mapped::Id(id) => Some(id),
        Mapped::Null => None,
        Mapped::Lost => {
            *replaced += 1;
            fallback
        }
    };
    let mut none = Nulls::default();
    let mut place = |i: usize, id: Option<i64>| {
        id.unwrap_or_else(|| {
            none.set(i);
            0
        })
    };
    match &mut *cells {
        // Mostly integers without NULL that all refer to rows.
        Cells::Int { values, nulls } if !nulls.any() => {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = place(i, id_of(Value::Int(*value))));
            *nulls = none;
        }
        cells => {
            let values = (0..rows).map(|i| place(i, id_of(cells.get(i)))).collect();
            *cells = Cells::Int { values, nulls: none };
        }
    }
}

/// Replaces values that SQLite would reject: NULL where it is not allowed (NaN is stored as NULL), and a word that a
/// CHECK does not list. Only a damaged or hostile shard contains such values.
fn keep_constraints(column: &Column, cells: &mut Cells, rows: usize, replaced: &mut u64) {
    let sql = &column.sql;
    let is_nan = |v: Value<'_>| matches!(v, Value::Real(r) if r.is_nan());
    let is_null = |v: Value<'_>| v == Value::Null || is_nan(v);
    if sql.not_null {
        // If the column has a default, the writer replaces NULL by it.
        let has_default = sql.default.is_some();
        let refused = match &*cells {
            Cells::Absent if has_default => 0,
            Cells::Int { nulls, .. } if !nulls.any() => 0,
            Cells::Text(_) if has_default => 0,
            cells => {
                let refuse = |v| if has_default { is_nan(v) } else { is_null(v) };
                (0..rows).filter(|i| refuse(cells.get(*i))).count() as u64
            }
        };
        if refused > 0 {
            *replaced += refused;
            let replacement = match column.kind {
                _ if has_default => OwnedValue::Null,
                Kind::Text => OwnedValue::Text(Box::default()),
                _ => OwnedValue::Int(0),
            };
            let value = |i| Some(cells.get(i)).filter(|v| !is_null(*v));
            let value = |i| value(i).map_or_else(|| replacement.clone(), Value::to_owned);
            *cells = Cells::Any((0..rows).map(value).collect());
        }
    }
    if !sql.one_of.is_empty() && !matches!(cells, Cells::Absent) {
        let allowed = |v: Value<'_>| match v {
            Value::Text(text) => sql.one_of.iter().any(|word| word.as_bytes() == text),
            v => is_null(v),
        };
        let refused = (0..rows).filter(|i| !allowed(cells.get(*i))).count() as u64;
        if refused > 0 {
            *replaced += refused;
            let keep =
                |i| Some(cells.get(i)).filter(|v| allowed(*v)).map_or(OwnedValue::Null, Value::to_owned);
            *cells = Cells::Any((0..rows).map(keep).collect());
        }
    }
}
