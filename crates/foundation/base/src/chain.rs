//! Printing an error together with everything that caused it.

use std::error::Error;
use std::fmt;

/// Displays an error as `outer: middle: root`.
///
/// Our error types never print their own source, so that this adapter names each
/// cause exactly once.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(out, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl fmt::Display for Outer {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("cannot read port")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn each_cause_is_named_once() {
        let error = Outer("x".parse::<u16>().unwrap_err());
        assert_eq!(Chain(&error).to_string(), "cannot read port: invalid digit found in string");
    }
}
