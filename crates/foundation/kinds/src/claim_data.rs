//! Rule for reading the data of a claim or snapshot of another namespace: CDI's. Users need an
//! explicit right there, or rights by which they can read the data anyway.

/// The group of CDI's kinds.
const CDI: &str = "cdi.kubevirt.io";
/// The right that CDI's administrators give for this.
const SOURCE: &str = "datavolumes/source";

/// The place of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPlace {
    /// A claim, which a pod can mount.
    Claim,
    /// A snapshot or backup, of which a claim has to be made first.
    Snapshot,
}

/// Whether a user may read the data. `may_create` says whether the user may create the resource, given by
/// its group and its plural, with the name of the claim or snapshot in its namespace.
pub fn may_read_data(place: DataPlace, may_create: impl Fn(&str, &str) -> bool) -> bool {
    may_create(CDI, SOURCE)
        || may_create("", "pods")
            && (place == DataPlace::Claim || may_create("", "persistentvolumeclaims"))
}

/// CDI's message for users who may not.
pub fn data_refusal(user: &str, namespace: &str) -> String {
    format!("User {user} has insufficient permissions in clone source namespace {namespace}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_read_with_the_right_to_clone_or_the_rights_to_mount_it() {
        for (rights, claim, snapshot) in [
            (&[][..], false, false),
            (&["datavolumes/source"], true, true),
            (&["pods"], true, false),
            (&["persistentvolumeclaims"], false, false),
            (&["pods", "persistentvolumeclaims"], true, true),
        ] {
            let read = |place| may_read_data(place, |_, resource| rights.contains(&resource));
            let found = (read(DataPlace::Claim), read(DataPlace::Snapshot));
            assert_eq!(found, (claim, snapshot), "{rights:?}");
        }
        let in_other_group = |group: &str, _: &str| group == "example.org";
        assert!(!may_read_data(DataPlace::Claim, in_other_group));
    }
}
