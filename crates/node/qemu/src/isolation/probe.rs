//! Whether this host lets us isolate QEMU: found by starting a program that does nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Entrance, Isolation, RootPlan, as_first_process};
use crate::process::{ProcessUser, confine};

const PROGRAM: &str = "/bin/true";

/// Why QEMU cannot be isolated here.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("the host refuses namespaces")]
    Refused(#[source] io::Error),
    #[error("a program in namespaces of its own failed: {status}")]
    Failed { status: std::process::ExitStatus },
}

/// Tries as this user. Blocks.
pub fn probe(user: &ProcessUser) -> Result<(), ProbeError> {
    let (program, nowhere) = (Path::new(PROGRAM), Path::new("/"));
    let root = RootPlan::new(program, nowhere, &BTreeSet::new()).map_err(ProbeError::Refused)?;
    let entrance = Entrance { isolation: Isolation::default(), root };
    let mut command = Command::new(PROGRAM);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    confine(&mut command, Some(user.clone()), Some(entrance));
    let ended = as_first_process(|| command.spawn()).and_then(|mut child| child.wait());
    let status = ended.map_err(ProbeError::Refused)?;
    if status.success() { Ok(()) } else { Err(ProbeError::Failed { status }) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_host_with_root_lets_programs_be_isolated() {
        assert!(crate::tests::is_root(), "this test makes namespaces: run it as root");
        let before = fs::read_to_string("/proc/self/mounts").unwrap();
        probe(&crate::tests::identity().unwrap()).unwrap();
        // The mounts were the child's.
        assert_eq!(fs::read_to_string("/proc/self/mounts").unwrap(), before);
    }
}
