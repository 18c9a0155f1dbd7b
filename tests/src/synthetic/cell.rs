use rpd_shard::model::TableId;
use std::fmt::Write as _;
use std::sync::Arc;

/// One value of a row of the model. What it refers to is named, not numbered.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelCell {
    /// SQL NULL.
    Null,
    /// A number that means nothing else.
    Int(i64),
    /// A floating point number.
    Real(f64),
    /// Text that stands in the column itself.
    Text(Arc<str>),
    /// Text that stands in the string table.
    Name(Arc<str>),
    /// True job time, ns.
    Time(i64),
    /// A row of the same process: its table and position there, from 0.
    Row(TableId, usize),
    /// A stack id of the process.
    Stack(i64),
    /// JSON text, perhaps with ids in it.
    Json(JsonCell),
}

/// A row: its cells in the order of the table's columns.
pub type Row = Vec<ModelCell>;

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub enum JsonCell {
    /// A number.
    Int(i64),
    /// A text without quotes, backslashes and control characters.
    Text(Arc<str>),
    /// The id of a row of the same process.
    Row(TableId, usize),
    /// Keys and values.
    Object(Vec<(&'static str, JsonCell)>),
}

impl JsonCell {
    /// `{}`.
    pub fn empty() -> ModelCell {
        ModelCell::Json(JsonCell::Object(Vec::new()))
    }

    /// An object as a cell.
    pub fn cell<const N: usize>(entries: [(&'static str, JsonCell); N]) -> ModelCell {
        ModelCell::Json(JsonCell::Object(entries.into()))
    }

    /// The text, with the ids that `id` gives to rows.
    pub fn render(&self, id: &dyn Fn(TableId, usize) -> i64) -> String {
        let mut out = String::new();
        self.write(&mut out, id);
        out
    }

    fn write(&self, out: &mut String, id: &dyn Fn(TableId, usize) -> i64) {
        match self {
            JsonCell::Int(v) => {
                let _ = write!(out, "{v}");
            }
            JsonCell::Text(text) => {
                let _ = write!(out, "\"{text}\"");
            }
            JsonCell::Row(table, row) => {
                let _ = write!(out, "{}", id(*table, *row));
            }
            JsonCell::Object(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    let _ = write!(out, "{}\"{key}\": ", if i == 0 { "" } else { ", " });
                    value.write(out, id);
                }
                out.push('}');
            }
        }
    }
}

/// Text in a column.
pub(super) fn text(value: impl AsRef<str>) -> ModelCell {
    ModelCell::Text(value.as_ref().into())
}

/// A number, or NULL.
pub(super) fn int_or_null(value: Option<i64>) -> ModelCell {
    value.map_or(ModelCell::Null, ModelCell::Int)
}
