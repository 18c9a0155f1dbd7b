//! Checks objects against `report.schema.json`, as far as that uses JSON Schema.

use serde_json::Value as Json;

/// Keywords that are checked, and those that mean nothing for an object's validity.
const KEYWORDS: [&str; 16] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "anyOf",
    "minimum",
    "maximum",
];

/// Returns where an object does not match the schema.
pub(crate) fn violations(object: &Json) -> Vec<String> {
    let schema: Json = serde_json::from_str(include_str!("../../report.schema.json")).unwrap();
    let mut found = Vec::new();
    check(&schema, &schema, object, "$", &mut found);
    found
}

fn check(root: &Json, schema: &Json, value: &Json, at: &str, found: &mut Vec<String>) {
    let Some(rules) = schema.as_object() else {
        if *schema == Json::Bool(false) {
            found.push(format!("{at} is not in the schema"));
        }
        return;
    };
    for (keyword, rule) in rules {
        assert!(KEYWORDS.contains(&keyword.as_str()), "{keyword} is not checked by this test");
        let is_met = match keyword.as_str() {
            "$ref" => {
                let target = rule.as_str().unwrap().strip_prefix('#').unwrap();
                check(root, root.pointer(target).unwrap(), value, at, found);
                true
            }
            "type" => match rule {
                Json::Array(types) => types.iter().any(|name| is_type(value, name.as_str().unwrap())),
                name => is_type(value, name.as_str().unwrap()),
            },
            "anyOf" => rule.as_array().unwrap().iter().any(|branch| {
                let mut in_branch = Vec::new();
                check(root, branch, value, at, &mut in_branch);
                in_branch.is_empty()
            }),
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "required" => {
                let names = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                value
                    .as_object()
                    .is_none_or(|members| names.into_iter().all(|name| members.contains_key(name)))
            }
            _ => true,
        };
        if !is_met {
            found.push(format!("{at}: {keyword} {rule}: {value}"));
        }
    }
    let properties = rules.get("properties").and_then(Json::as_object);
    for (name, member) in value.as_object().into_iter().flatten() {
        let known = properties.and_then(|properties| properties.get(name));
        if let Some(rule) = known.or_else(|| rules.get("additionalProperties")) {
            check(root, rule, member, &format!("{at}.{name}"), found);
        }
    }
    if let (Some(rule), Some(items)) = (rules.get("items"), value.as_array()) {
        for (place, item) in items.iter().enumerate() {
            check(root, rule, item, &format!("{at}[{place}]"), found);
        }
    }
}

fn is_type(value: &Json, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("type {other}"),
    }
}
