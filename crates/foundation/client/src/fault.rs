//! The error of a failed request, as a short text.

use std::error::Error;
use std::fmt;

/// Why a request failed. It wraps [`kube::Error`], which prints all its causes and the
/// whole answer of the server itself, and more than once.
#[derive(Debug)]
pub struct Fault(pub kube::Error);

impl Fault {
    /// The status code of the server's answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match &self.0 {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            kube::Error::Api(status) => out.write_str(&status.message),
            error => write!(out, "{error}"),
        }
    }
}

// No source: the text above has it already.
impl Error for Fault {}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_answer_of_the_server_is_its_message() {
        let status = Status::failure("pods \"a\" not found", "NotFound").with_code(404);
        let fault = Fault(kube::Error::Api(status.boxed()));
        assert_eq!(fault.to_string(), "pods \"a\" not found");
        assert_eq!(fault.code(), Some(404));
    }
}
