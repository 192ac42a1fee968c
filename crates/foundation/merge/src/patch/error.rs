//! Why an operation of a JSON patch does not fit its document. The texts are those of upstream, which
//! clients read as they are: a cause is a part of its sentence and therefore no `source`.

/// Why one operation cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    #[error("Unexpected kind: {0}")]
    Unknown(String),
    /// `path` or `from` is absent or no text.
    #[error("{operation} operation failed to decode {member}: {detail}missing value")]
    Undecodable { operation: String, member: &'static str, detail: &'static str },
    #[error("{operation} operation does not apply: doc is missing path: \"{path}\": missing value")]
    NoPath { operation: &'static str, path: String },
    /// One end of a move or a copy does not exist.
    #[error(
        "{operation} operation does not apply: doc is missing {end} path: {path}: missing value"
    )]
    NoEnd { operation: &'static str, end: &'static str, path: String },
    #[error("replace operation does not apply: doc is missing {what}: {path}: missing value")]
    NothingToReplace { what: &'static str, path: String },
    /// The whole document would become a scalar.
    #[error("replace operation value must be object or array")]
    ScalarDocument,
    #[error("test operation does not apply: is missing path: {0}: missing value")]
    NothingToTest(String),
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
    #[error("error in {operation} for path: '{path}': {cause}")]
    Step { operation: &'static str, path: String, cause: StepError },
    #[error("error in copy for from: '{from}': {cause}")]
    CopySource { from: String, cause: StepError },
    #[error("error while adding value during copy: {0}")]
    CopyDestination(StepError),
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {copied}, \
         exceeding the limit {most}"
    )]
    TooMuchCopied { copied: usize, most: usize },
}

/// Why the last step of a path cannot be taken in its container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    NotANumber(String),
    /// The same where an item is inserted.
    #[error(
        "value was not a proper array index: '{0}': strconv.Atoi: parsing {0:?}: invalid syntax"
    )]
    NotAnIndex(String),
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    NoSuchIndex(i64),
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    NoSuchKey(String),
}
