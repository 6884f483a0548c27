//! Device names: `kind:body?key=value&key=value`, and `wrapper:body?...@inner` for middleware.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A parsed device name. Every option must be asked for by someone, or it is an error: a typing
/// mistake never silently benches something else.
#[derive(Clone, Debug)]
pub struct Uri {
    text: String,
    scheme: String,
    body: String,
    options: BTreeMap<String, String>,
    used: RefCell<Vec<String>>,
    inner: Option<String>,
}

/// What is wrong with a device name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Not of the form at all.
    #[error("`{text}` is not a device: {why}")]
    Malformed {
        /// What was given.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// An option's value cannot be read.
    #[error("`{uri}`: option {key}={value}: {why}")]
    BadValue {
        /// The device.
        uri: String,
        /// The option.
        key: String,
        /// What was given.
        value: String,
        /// What was expected.
        why: String,
    },
    /// Options that nothing asked for.
    #[error("`{uri}`: unknown option {unknown}; known here: {known}")]
    Unknown {
        /// The device.
        uri: String,
        /// The options that nothing asked for.
        unknown: String,
        /// Those that were asked for.
        known: String,
    },
}

/// The schemes whose devices wrap another: only for these does an `@` start the inner device.
const WRAPPERS: [&str; 3] = ["trace", "fault", "model"];
const SCHEMES: [&str; 9] =
    ["file", "mem", "null", "trace", "fault", "model", "pcie", "soft", "array"];

impl Uri {
    /// Parses `text`. A bare path is a `file:`.
    ///
    /// # Errors
    /// No scheme that is known and no path either, or a malformed option.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let malformed =
            |why: &str| UriError::Malformed { text: text.to_owned(), why: why.to_owned() };
        if text.is_empty() {
            return Err(malformed("it is empty"));
        }
        if text.contains('\0') {
            return Err(malformed("it contains a NUL byte"));
        }
        let head_end = text.find([':', '@', '?']).unwrap_or(text.len());
        let head = &text[..head_end];
        let is_wrapper = WRAPPERS.contains(&head);
        let (scheme, rest) =
            if is_wrapper || (SCHEMES.contains(&head) && text[head_end..].starts_with(':')) {
                let rest = &text[head_end..];
                (head, rest.strip_prefix(':').unwrap_or(rest))
            } else if head.contains('/') || text.starts_with('.') || !text.contains(':') {
                ("file", text)
            } else {
                return Err(malformed(&format!(
                    "`{head}:` is no kind of device; known are {}, and a bare path is a file",
                    SCHEMES.join(":, ") + ":"
                )));
            };
        let (own, inner) = match rest.split_once('@') {
            Some((own, inner)) if is_wrapper => (own, Some(inner.to_owned())),
            _ => (rest, None),
        };
        if inner.as_deref() == Some("") {
            return Err(malformed("nothing follows the `@`"));
        }
        let (body, query) = own.split_once('?').unwrap_or((own, ""));
        let mut options = BTreeMap::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, "1"));
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(malformed(&format!("option {key} is given twice")));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            scheme: scheme.to_owned(),
            body: body.to_owned(),
            options,
            used: RefCell::default(),
            inner,
        })
    }

    /// The kind of device.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands between the scheme and the options.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }

    /// The device that this one wraps, unparsed.
    #[must_use]
    pub fn inner(&self) -> Option<&str> {
        self.inner.as_deref()
    }

    /// An option's value, read as a `T`; `None` if it is not given.
    ///
    /// # Errors
    /// The value is no `T`.
    pub fn option<T: FromStr>(&self, key: &str) -> Result<Option<T>, UriError>
    where
        T::Err: fmt::Display,
    {
        self.read(key, |v| v.parse().map_err(|e: T::Err| e.to_string()))
    }

    /// An option that is a number of bytes: `4096`, `4k`, `1G`.
    ///
    /// # Errors
    /// The value is no size.
    pub fn size(&self, key: &str) -> Result<Option<u64>, UriError> {
        self.read(key, parse_size)
    }

    /// An option that is yes or no: `1`, `0`, `true`, `false`, or the bare key for yes.
    ///
    /// # Errors
    /// The value is neither.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, UriError> {
        self.read(key, |v| match v {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            _ => Err("expected 0 or 1".to_owned()),
        })
    }

    fn read<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, UriError> {
        self.used.borrow_mut().push(key.to_owned());
        let Some(value) = self.options.get(key) else {
            return Ok(None);
        };
        parse(value).map(Some).map_err(|why| self.bad(key, &why))
    }

    /// The error for option `key`, whose value breaks a rule of the device: `why`.
    #[must_use]
    pub fn bad(&self, key: &str, why: &str) -> UriError {
        UriError::BadValue {
            uri: self.text.clone(),
            key: key.to_owned(),
            value: self.options.get(key).cloned().unwrap_or_default(),
            why: why.to_owned(),
        }
    }

    /// Call after the last option was read.
    ///
    /// # Errors
    /// Options that nothing asked for.
    pub fn finish(&self) -> Result<(), UriError> {
        let used = self.used.borrow();
        let unknown: Vec<&str> =
            self.options.keys().filter(|k| !used.contains(k)).map(String::as_str).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known = if used.is_empty() { "none".to_owned() } else { used.join(", ") };
        Err(UriError::Unknown { uri: self.text.clone(), unknown: unknown.join(", "), known })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a number of bytes as fio does: plain, or with k, m, g, t, p (powers of 1024, any case,
/// an `iB` or `b` after it is ignored).
///
/// # Errors
/// What was expected, in words.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected =
        || format!("`{text}` is no size: expected a number of bytes such as 4096, 4k or 1G");
    let lower = text.trim().to_ascii_lowercase();
    let digits_end = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let number: u64 = lower[..digits_end].parse().map_err(|_| expected())?;
    let power = match lower[digits_end..].trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(expected()),
    };
    number
        .checked_mul(1 << (10 * power))
        .ok_or_else(|| format!("`{text}` is too large: at most 16 EiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_path_is_a_file_and_a_wrapper_names_what_it_wraps() {
        let uri = Uri::parse("/dev/shm/a@b?size=1G&rotational").unwrap();
        assert_eq!((uri.scheme(), uri.body(), uri.inner()), ("file", "/dev/shm/a@b", None));
        assert_eq!(uri.size("size").unwrap(), Some(1 << 30));
        assert_eq!(uri.flag("rotational").unwrap(), Some(true));
        uri.finish().unwrap();

        let uri = Uri::parse("fault?seed=7@model:p5520@mem:1G").unwrap();
        assert_eq!((uri.scheme(), uri.body()), ("fault", ""));
        assert_eq!(uri.inner(), Some("model:p5520@mem:1G"));
    }

    #[test]
    fn mistakes_are_told_apart() {
        assert!(matches!(Uri::parse("nvme:1"), Err(UriError::Malformed { .. })));
        assert!(matches!(Uri::parse(""), Err(UriError::Malformed { .. })));
        let uri = Uri::parse("mem:1G?blokc=512").unwrap();
        assert!(uri.size("block").unwrap().is_none());
        let message = uri.finish().unwrap_err().to_string();
        assert!(message.contains("blokc") && message.contains("block"), "{message}");
        let uri = Uri::parse("mem:1G?block=many").unwrap();
        assert!(matches!(uri.size("block"), Err(UriError::BadValue { .. })));
    }

    #[test]
    fn sizes_read_as_fio_reads_them() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("2T"), Ok(2 << 40));
        assert!(parse_size("k").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("99999999p").is_err());
    }
}
