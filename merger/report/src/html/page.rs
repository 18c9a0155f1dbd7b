//! The page as text: its parts are put into a template, with a policy that permits only its own script and style.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rpd_console::Failure;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::io::Write;

/// Maximum size of a page, bytes.
pub(super) const MAX_PAGE_BYTES: usize = 20 << 20;
/// Level of compression: higher ones take several times as long for a few percent.
const LEVEL: u32 = 6;

const TEMPLATE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");
/// The script, one file after another.
const SCRIPT: [&str; 7] = [
    include_str!("assets/unpack.js"),
    include_str!("assets/format.js"),
    include_str!("assets/table.js"),
    include_str!("assets/heat_map.js"),
    include_str!("assets/plots.js"),
    include_str!("assets/counters.js"),
    include_str!("assets/page.js"),
];

/// Returns the page. `facts` has all texts, and the places of arrays in `arrays`.
///
/// # Errors
/// If the page is larger than [`MAX_PAGE_BYTES`].
pub(super) fn page_text(facts: &Json, arrays: &[u8]) -> Result<String, Failure> {
    let deflated = deflated(arrays).map_err(|error| Failure::internal(format!("cannot deflate: {error}")))?;
    let script = format!("'use strict';\n{}", SCRIPT.concat());
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(STYLE)
    );
    let parts = [
        ("{{policy}}", policy),
        ("{{style}}", STYLE.to_owned()),
        ("{{facts}}", inert_json(facts)),
        ("{{arrays}}", STANDARD.encode(deflated)),
        ("{{script}}", script),
    ];
    let page = filled(TEMPLATE, &parts);
    if page.len() > MAX_PAGE_BYTES {
        let (size, limit) = (page.len() >> 20, MAX_PAGE_BYTES >> 20);
        return Err(Failure::output(format!(
            "the page would have {size} MiB, the limit is {limit} MiB; select ranks by --ranks, or fewer rows by --top"
        )));
    }
    Ok(page)
}

/// Puts parts into a template. They come in the order of their marks, so that no text in a part is taken for a mark.
fn filled(template: &str, parts: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    for (mark, part) in parts {
        if let Some((before, after)) = rest.split_once(mark) {
            page.push_str(before);
            page.push_str(part);
            rest = after;
        }
    }
    page + rest
}

/// Returns JSON that ends no element of HTML.
fn inert_json(json: &Json) -> String {
    json.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn deflated(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_the_run_end_no_element() {
        let hostile = "</script><img src=x onerror=alert(1)><!--{{script}}{{arrays}}";
        let page = page_text(&json!({ "name": hostile }), b"data").map_err(|failure| failure.to_string());
        let page = page.unwrap_or_default();
        assert!(!page.contains("<img") && !page.contains("<!--{{"), "the name is markup");
        let lines = page.lines().filter(|line| line.contains("onerror"));
        assert_eq!(lines.count(), 1);
        let before =
            page_text(&json!({}), b"data").map_err(|failure| failure.to_string()).unwrap_or_default();
        for element in ["<script", "</script>", "<style", "</style>", "http-equiv"] {
            assert_eq!(page.matches(element).count(), before.matches(element).count(), "{element}");
        }
    }

    #[test]
    fn the_policy_permits_the_script_and_the_style_as_they_are() {
        let page = page_text(&json!({}), b"").map_err(|failure| failure.to_string()).unwrap_or_default();
        let between = |start: &str, end: &str| {
            let (_, after) = page.rsplit_once(start)?;
            after.split_once(end).map(|(text, _)| text)
        };
        for (start, end) in [("<script>", "</script>"), ("<style>", "</style>")] {
            let text = between(start, end).unwrap_or_default();
            assert!(text.len() > 1_000 && page.contains(&format!("'sha256-{}'", hash(text))), "{start}");
        }
        assert!(page.contains("default-src 'none'; script-src 'sha256-"));
        assert!(!page.contains("http://www.w3.org/2000/svg\"") && !page.contains("https://"), "no network");
        assert!(!SCRIPT.concat().contains("innerHTML") && !SCRIPT.concat().contains("eval("));
    }

    #[test]
    fn a_page_that_is_too_large_is_refused() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..16 << 20).map(|_| random()).collect();
        let refused = page_text(&json!({}), &noise).err().map(|failure| failure.to_string());
        assert!(refused.unwrap_or_default().contains("the limit is 20 MiB"));
    }
}
