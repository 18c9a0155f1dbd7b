//! Parses the CHECK constraints of a CREATE TABLE statement, which no PRAGMA returns.

/// A token of SQL text, with the offset after it.
struct Token<'a> {
    text: &'a str,
    end: usize,
}

impl Token<'_> {
    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// Returns the text without its quotes if it is quoted by one of `quotes`.
    fn unquoted(&self, quotes: &[u8]) -> Option<String> {
        let first = self.text.bytes().next().filter(|byte| quotes.contains(byte))?;
        let last = if first == b'[' { b']' } else { first };
        let inner = self.text.get(1..)?.strip_suffix(char::from(last))?;
        let quote = char::from(last).to_string();
        Some(inner.replace(&quote.repeat(2), &quote))
    }

    /// Returns the name that this token stands for, quoted or not.
    fn name(&self) -> Option<String> {
        let plain = || self.text.bytes().all(is_word_byte).then(|| self.text.to_owned());
        self.unquoted(b"\"`[").or_else(plain)
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Splits SQL into words, quoted texts and single characters. Skips white space and comments.
fn tokens(sql: &str) -> impl Iterator<Item = Token<'_>> {
    let bytes = sql.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..)?;
            let comment = match rest {
                [b'-', b'-', ..] => rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |n| n + 1),
                [b'/', b'*', ..] => {
                    rest[2..].windows(2).position(|w| w == b"*/").map_or(rest.len(), |n| n + 4)
                }
                [space, ..] if space.is_ascii_whitespace() => 1,
                _ => break,
            };
            at += comment;
        }
        let (start, rest) = (at, bytes.get(at..)?);
        let length = match *rest.first()? {
            quote @ (b'\'' | b'"' | b'`') => quoted(rest, quote),
            b'[' => rest.iter().position(|b| *b == b']').map_or(rest.len(), |n| n + 1),
            byte if is_word_byte(byte) => rest.iter().take_while(|b| is_word_byte(**b)).count(),
            _ => 1,
        };
        at += length;
        Some(Token { text: sql.get(start..at)?, end: at })
    })
}

/// Returns the length of a quoted text. A doubled quote does not end it.
fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if *byte == quote {
            if bytes.get(at) != Some(&quote) {
                return at;
            }
            at += 1;
        }
    }
    bytes.len()
}

/// Returns the condition of each CHECK, including its parentheses.
pub(crate) fn conditions(sql: &str) -> Vec<&str> {
    let mut conditions = Vec::new();
    let mut all = tokens(sql);
    while let Some(token) = all.next() {
        if !token.is("CHECK") {
            continue;
        }
        let start = token.end;
        let mut depth = 0usize;
        for token in all.by_ref() {
            match token.text {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                conditions.extend(sql.get(start..token.end).map(str::trim));
                break;
            }
        }
    }
    conditions
}

/// Returns the columns that a CHECK restricts to some words, and these words: `CHECK ("type" IN ('CPU', 'GPU'))`.
pub(crate) fn allowed_words(sql: &str) -> Vec<(String, Vec<String>)> {
    conditions(sql).into_iter().filter_map(words).collect()
}

/// Returns the column and the words of such a condition, or `None` for any other condition.
fn words(condition: &str) -> Option<(String, Vec<String>)> {
    let mut tokens = tokens(condition);
    let mut expect = |text: &str| tokens.next().filter(|token| token.is(text));
    expect("(")?;
    let column = tokens.next()?.name()?;
    let mut expect = |text: &str| tokens.next().filter(|token| token.is(text));
    expect("IN")?;
    expect("(")?;
    let mut words = Vec::new();
    loop {
        words.push(tokens.next()?.unquoted(b"'\"")?);
        match tokens.next()?.text {
            "," => {}
            ")" => break,
            _ => return None,
        }
    }
    (tokens.next()?.text == ")" && tokens.next().is_none()).then_some((column, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_condition_of_a_check_ends_with_its_parenthesis() {
        let sql = "CREATE TABLE t (\"a\" TEXT CHECK (\"a\" IN\n ('x', 'y)')), b INT check(b > (1)), \
                   c TEXT DEFAULT 'CHECK (0)' -- CHECK (1)\n)";
        assert_eq!(conditions(sql), ["(\"a\" IN\n ('x', 'y)'))", "(b > (1))"]);
    }

    #[test]
    fn allowed_words_are_found_in_any_quoting() {
        let words = |sql: &str| allowed_words(sql);
        let one = |column: &str, words: &[&str]| {
            vec![(column.to_owned(), words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())]
        };
        assert_eq!(words("CHECK (\"type\" IN ('CPU', 'GPU'))"), one("type", &["CPU", "GPU"]));
        assert_eq!(words("CHECK(`t` in(\"it's\",'it''s'))"), one("t", &["it's", "it's"]));
        assert_eq!(words("CHECK ([a b] IN ('x'))"), one("a b", &["x"]));
        assert_eq!(words("CHECK (t NOT IN ('x')) CHECK (t IN (1)) CHECK (t IN ('a')"), vec![]);
    }

    proptest! {
        #[test]
        fn any_text_has_some_conditions(sql in "(\\PC|CHECK|[()'\"`\\[\\]]|--|/\\*|\\*/| IN ){0,60}") {
            allowed_words(&sql);
        }
    }
}
