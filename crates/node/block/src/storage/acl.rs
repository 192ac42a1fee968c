//! POSIX access control lists of sockets: a process that is not root lets one user or group connect
//! to a socket of its own. It cannot give the socket away, and needs no capability for the list.
//!
//! A file system without such lists refuses; nothing else is tried here.

use std::io;
use std::path::Path;

use rustix::fs::XattrFlags;

use super::state::Grant;

const NAME: &str = "system.posix_acl_access";
/// The version of the format in which the kernel takes lists.
const VERSION: u32 = 2;
const READ_WRITE: u16 = 6;
const UNDEFINED_ID: u32 = u32::MAX;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// The list by which the owner and those of the grant may read and write.
fn encode(grant: Grant) -> Vec<u8> {
    let mut entries = vec![(OWNER, READ_WRITE, UNDEFINED_ID)];
    entries.extend(grant.user.map(|user| (USER, READ_WRITE, user)));
    entries.push((OWNING_GROUP, 0, UNDEFINED_ID));
    entries.extend(grant.group.map(|group| (GROUP, READ_WRITE, group)));
    entries.extend([(MASK, READ_WRITE, UNDEFINED_ID), (OTHERS, 0, UNDEFINED_ID)]);
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Lets the owner and those of the grant use the file at `path`, and no other user.
pub(super) fn set(path: &Path, grant: Grant) -> io::Result<()> {
    if grant == Grant::default() {
        return match rustix::fs::removexattr(path, NAME) {
            Ok(()) | Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    Ok(rustix::fs::setxattr(path, NAME, &encode(grant), XattrFlags::empty())?)
}

/// Whether files in `dir` can have lists.
pub fn are_supported(dir: &Path) -> bool {
    !matches!(
        rustix::fs::getxattr(dir, NAME, &mut [0_u8; 0]),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS)
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_list_has_its_entries_in_the_order_of_the_kernel() {
        let tags = |grant| -> Vec<u16> {
            let list = encode(grant);
            assert_eq!(list[..4], 2_u32.to_le_bytes());
            list[4..].chunks(8).map(|entry| u16::from_le_bytes([entry[0], entry[1]])).collect()
        };
        let (user, group) = (Some(7), Some(8));
        assert_eq!(tags(Grant { user, group: None }), [OWNER, USER, OWNING_GROUP, MASK, OTHERS]);
        assert_eq!(tags(Grant { user: None, group }), [OWNER, OWNING_GROUP, GROUP, MASK, OTHERS]);
        let both = [OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS];
        assert_eq!(tags(Grant { user, group }), both);
    }

    #[test]
    fn a_list_is_set_and_taken_away_without_a_right_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        std::fs::write(&path, "").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
        mode(0o600).unwrap();
        let list = || {
            let mut bytes = [0_u8; 64];
            let found = rustix::fs::getxattr(&path, NAME, &mut bytes);
            found.map(|length| bytes[..length].to_vec())
        };
        assert!(are_supported(dir.path()), "the test needs a file system with lists");
        let grant = Grant { user: Some(4711), group: None };
        set(&path, grant).unwrap();
        assert_eq!(list(), Ok(encode(grant)));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o007, 0);
        mode(0o600).unwrap();
        set(&path, Grant::default()).unwrap();
        set(&path, Grant::default()).unwrap();
        assert_eq!(list(), Err(rustix::io::Errno::NODATA));
    }
}
