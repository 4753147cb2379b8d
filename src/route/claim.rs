//! Claims of a token, as the file names them.

use std::fmt;

use serde_json::{Map, Value};

use crate::measure::{JsonPointer, PointerFault};

/// A claim of a token (RFC 7519 §4): by its name, or by a JSON pointer (RFC 6901) to a value within a claim. `Display` writes
/// it as in the file: `sub`, `/realm_access/roles`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimPath {
    /// The claim of this name; it does not begin with `/`.
    Name(Box<str>),
    /// The value at this place of all claims.
    Within(JsonPointer),
}

/// Claims whose texts are lists, with blanks between the items: RFC 8693 §4.2, and the same of other issuers.
const SCOPES: [&str; 2] = ["scope", "scp"];

impl ClaimPath {
    /// Parses a name, or a pointer, which begins with `/`.
    ///
    /// # Errors
    ///
    /// It begins with `/`, but is no pointer.
    pub fn parse(text: &str) -> Result<Self, PointerFault> {
        match text.starts_with('/') {
            true => JsonPointer::parse(text).map(Self::Within),
            false => Ok(Self::Name(text.into())),
        }
    }

    /// As it is written in the file.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Within(pointer) => pointer.as_str(),
        }
    }

    /// Its value in the claims of a token.
    pub fn find<'c>(&self, claims: &'c Map<String, Value>) -> Option<&'c Value> {
        match self {
            Self::Name(name) => claims.get(&**name),
            Self::Within(pointer) => pointer.find(claims),
        }
    }

    /// Whether its texts are lists of scopes (RFC 6749 §3.3), with blanks between them.
    pub fn is_scope(&self) -> bool {
        let Self::Name(name) = self else { return false };
        SCOPES.contains(&&**name)
    }

    /// Whether a value of it has `wanted`: it is `wanted`, or a list with `wanted`. Several scopes are had if each of
    /// them is.
    pub fn has(&self, value: &Value, wanted: &str) -> bool {
        match self.is_scope() {
            true => wanted.split(' ').all(|scope| has_scope(value, scope)),
            false => each(value).any(|item| is_text(item, wanted)),
        }
    }
}

fn has_scope(value: &Value, scope: &str) -> bool {
    each(value).any(|item| item.as_str().is_some_and(|text| text.split(' ').any(|one| one == scope)))
}

/// The items of a list; another value is an item itself.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    items.iter()
}

/// Whether a value is this text. A whole number and a boolean have the text that JSON writes.
fn is_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) if !number.is_f64() => number.to_string() == wanted,
        Value::Bool(is_true) => wanted == if *is_true { "true" } else { "false" },
        _ => false,
    }
}

impl fmt::Display for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn assert_has(claim: &str, value: &Value, wanted: &str, has: bool) {
        let claim = ClaimPath::parse(claim).unwrap();
        assert_eq!(claim.has(value, wanted), has, "{claim}: {wanted} in {value}");
    }

    #[test]
    fn a_value_is_found_by_name_or_by_pointer() {
        let claims = json!({
            "sub": "a", "https://x/roles": ["admin"], "realm_access": {"roles": ["r0", {"deep": 7}]}, "a/b": {"~": true},
        });
        let claims = claims.as_object().unwrap();
        let find = |claim: &str| ClaimPath::parse(claim).unwrap().find(claims).cloned();
        assert_eq!(find("sub"), Some(json!("a")));
        assert_eq!(find("/sub"), Some(json!("a")));
        assert_eq!(find("https://x/roles"), Some(json!(["admin"])));
        assert_eq!(find("/realm_access/roles/0"), Some(json!("r0")));
        assert_eq!(find("/realm_access/roles/1/deep"), Some(json!(7)));
        assert_eq!(find("/a~1b/~0"), Some(json!(true)));
        for absent in
            ["realm_access/roles", "/realm_access/roles/2", "/realm_access/roles/-", "/sub/a", "/", "/x"]
        {
            assert_eq!(find(absent), None, "{absent}");
        }
        assert!(ClaimPath::parse("/a~2").is_err());
    }

    #[test]
    fn values_are_compared_whole() {
        assert_has("role", &json!("admin"), "admin", true);
        assert_has("role", &json!(["user", "admin"]), "admin", true);
        assert_has("level", &json!(3), "3", true);
        assert_has("email_verified", &json!(true), "true", true);
        for (value, wanted) in [
            (json!("admin2"), "admin"),
            (json!("Admin"), "admin"),
            (json!("user admin"), "admin"),
            (json!([["admin"]]), "admin"),
            (json!({"admin": true}), "admin"),
            (json!(3.0), "3"),
            (json!("true"), "false"),
            (json!(null), "null"),
            (json!([]), ""),
        ] {
            assert_has("role", &value, wanted, false);
        }
    }

    #[test]
    fn scopes_stand_in_one_text_or_in_a_list() {
        for value in [json!("orders:read orders:write"), json!(["orders:write", "orders:read"])] {
            for claim in ["scope", "scp"] {
                assert_has(claim, &value, "orders:read", true);
                assert_has(claim, &value, "orders:read orders:write", true);
                assert_has(claim, &value, "orders:read orders:delete", false);
                assert_has(claim, &value, "orders", false);
            }
        }
        assert_has("/scope", &json!("orders:read orders:write"), "orders:read", false);
    }
}
