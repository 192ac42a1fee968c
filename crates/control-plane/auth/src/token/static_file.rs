//! Tokens from a file: `token,user,uid[,"group1,group2"]`, one per line, as in
//! Kubernetes' `--token-auth-file`. A token leaves the file, the file is read again,
//! and the token is no longer valid.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};

use crate::user::User;

/// Why a file of tokens cannot be used. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaticTokensError {
    #[error("line {line} must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns { line: usize, found: usize },
    #[error("line {line} has a quotation mark where none may be")]
    StrayQuote { line: usize },
    #[error("quotation that begins on line {line} has no end")]
    OpenQuote { line: usize },
    #[error("line {line} repeats the token of another line")]
    Duplicate { line: usize },
}

/// Users by the hash of their token: how long a lookup takes says nothing about
/// the tokens themselves, and a memory dump does not hold them.
#[derive(Debug, Clone, Default)]
pub struct StaticTokens(HashMap<[u8; 32], User>);

impl StaticTokens {
    /// Lines without a token are skipped. A repeated token is refused: which user
    /// it means would depend on the order of lines.
    pub fn parse(text: &str) -> Result<Self, StaticTokensError> {
        let mut users = HashMap::new();
        for (line, record) in records(text)? {
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                return Err(StaticTokensError::Columns { line, found: record.len() });
            };
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let user = User { uid: uid.clone(), ..User::new(name, groups) };
            if users.insert(hash(token), user).is_some() {
                return Err(StaticTokensError::Duplicate { line });
            }
        }
        Ok(Self(users))
    }

    pub fn lookup(&self, token: &str) -> Option<&User> {
        self.0.get(&hash(token))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn hash(token: &str) -> [u8; 32] {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// RFC 4180: fields between commas, quoted ones may hold commas, line ends and `""`.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, StaticTokensError> {
    let mut records = Vec::new();
    let (mut line, mut start) = (1, 1);
    let mut fields: Vec<String> = Vec::new();
    let mut field = String::new();
    let mut chars = text.chars().peekable();
    let mut after_quote = false;
    while let Some(char) = chars.next() {
        match char {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' | ',' => {
                let is_blank =
                    char == '\n' && fields.is_empty() && field.is_empty() && !after_quote;
                after_quote = false;
                if !is_blank {
                    fields.push(std::mem::take(&mut field));
                }
                if char == '\n' {
                    if !fields.is_empty() {
                        records.push((start, std::mem::take(&mut fields)));
                    }
                    line += 1;
                    start = line;
                }
            }
            '"' if field.is_empty() && !after_quote => {
                let opened = line;
                loop {
                    match chars.next() {
                        Some('"') if chars.peek() == Some(&'"') => {
                            chars.next();
                            field.push('"');
                        }
                        Some('"') => break,
                        Some(inner) => {
                            line += usize::from(inner == '\n');
                            field.push(inner);
                        }
                        None => return Err(StaticTokensError::OpenQuote { line: opened }),
                    }
                }
                after_quote = true;
            }
            '"' => return Err(StaticTokensError::StrayQuote { line }),
            _ if after_quote => return Err(StaticTokensError::StrayQuote { line }),
            other => field.push(other),
        }
    }
    if !field.is_empty() || !fields.is_empty() || after_quote {
        fields.push(field);
        records.push((start, fields));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_users_with_their_groups() {
        let tokens = StaticTokens::parse(
            "t1,alice,u1\n\
             t2,bob,u2,\"staff,admins\"\r\n\
             \n\
             ,nobody,u3\n\
             \"t,\"\"4\",carol,u4,solo",
        )
        .unwrap();
        assert_eq!(tokens.len(), 3);
        let groups = |token| tokens.lookup(token).map(|user| user.groups.clone());
        assert_eq!(tokens.lookup("t1").unwrap().name, "alice");
        assert_eq!(tokens.lookup("t1").unwrap().uid, "u1");
        assert_eq!(groups("t2").unwrap(), ["staff", "admins"]);
        assert_eq!(groups("t,\"4").unwrap(), ["solo"]);
        assert_eq!(groups(""), None);
        assert_eq!(groups("t3"), None);
    }

    #[test]
    fn a_broken_file_is_refused_with_its_line() {
        use StaticTokensError::{Columns, Duplicate, OpenQuote, StrayQuote};
        for (text, expected) in [
            ("a,b,c\nx,y\n", Columns { line: 2, found: 2 }),
            ("a,b,c\na,d,e\n", Duplicate { line: 2 }),
            ("a,b,c\n\n\"a,b,c\n", OpenQuote { line: 3 }),
            ("a,b\"b,c\n", StrayQuote { line: 1 }),
            ("a,\"b\"b,c\n", StrayQuote { line: 1 }),
        ] {
            assert_eq!(StaticTokens::parse(text).unwrap_err(), expected, "{text:?}");
        }
        assert!(StaticTokens::parse("").unwrap().is_empty());
    }
}
