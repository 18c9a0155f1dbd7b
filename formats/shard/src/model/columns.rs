//! Declares columns. The functions and the methods of [`Column`] read like DDL.

use super::table::{Column, Declared, JsonRef, Kind, TableId};

fn column(name: &str, kind: Kind, type_name: &str) -> Column {
    let sql = Declared { type_name: type_name.to_owned(), ..Declared::default() };
    Column { name: name.to_owned(), kind, sql, near: None }
}

/// A [`Kind::Ref`] column.
pub fn reference(name: &str, table: TableId) -> Column {
    column(name, Kind::Ref(table), "INTEGER")
}

/// A [`Kind::Str`] column.
pub fn string(name: &str) -> Column {
    column(name, Kind::Str, "INTEGER")
}

/// A [`Kind::Stack`] column.
pub fn stack(name: &str) -> Column {
    column(name, Kind::Stack, "INTEGER")
}

/// A [`Kind::Time`] column, ns.
pub fn time(name: &str) -> Column {
    column(name, Kind::Time, "BIGINT")
}

/// A [`Kind::Int`] column.
pub fn int(name: &str) -> Column {
    column(name, Kind::Int, "INTEGER")
}

/// A [`Kind::Text`] column.
pub fn text(name: &str) -> Column {
    column(name, Kind::Text, "TEXT")
}

/// A [`Kind::Real`] column.
pub fn real(name: &str) -> Column {
    column(name, Kind::Real, "REAL")
}
impl Column {
    /// Declares a JSON column as most columns of RocPD: `NOT NULL DEFAULT "{}"`.
    pub fn json(mut self, refs: &[(&[&str], TableId)]) -> Column {
        let path = |path: &[&str]| path.iter().map(|name| (*name).to_owned()).collect();
        let refs = refs.iter().map(|(names, table)| JsonRef { path: path(names), table: *table });
        self.kind = Kind::Json(refs.collect());
        self.declared("JSONB").not_null().default("{}")
    }

    /// Declares `NOT NULL`.
    pub fn not_null(mut self) -> Column {
        self.sql.not_null = true;
        self
    }

    /// Declares that values may be NULL.
    pub fn nullable(mut self) -> Column {
        self.sql.not_null = false;
        self
    }

    /// Declares `DEFAULT`.
    pub fn default(mut self, value: &str) -> Column {
        self.sql.default = Some(value.to_owned());
        self
    }

    /// Declares `CHECK (column IN (...))`.
    pub fn one_of(mut self, values: &[&str]) -> Column {
        self.sql.one_of = values.iter().map(|v| (*v).to_owned()).collect();
        self
    }

    /// Declares `UNIQUE`.
    pub fn unique(mut self) -> Column {
        self.sql.unique = true;
        self
    }

    /// Declares a type name other than that of the kind.
    pub fn declared(mut self, type_name: &str) -> Column {
        type_name.clone_into(&mut self.sql.type_name);
        self
    }

    /// Declares that values are close to those of the column at `position` in the same row.
    pub fn near(mut self, position: u8) -> Column {
        self.near = Some(position);
        self
    }
}
